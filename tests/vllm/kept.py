"""Batches of an observer in a vLLM's process, whose Python has no packages of the exporter's.

They are kept as they are, and made a recording by the test.
"""

from pathlib import Path

import msgspec

from kvscope_events.bus import Subscription
from kvscope_events.events import Batch


def keep(events: Subscription, file: Path) -> None:
    """Write all that has been queued."""
    batches = []
    while (taken := events.take()) is not None:
        batch, lost = taken
        assert not lost
        batches.append(batch)
    file.write_bytes(msgspec.msgpack.encode(batches))


def kept(file: Path) -> list[Batch]:
    return msgspec.msgpack.decode(file.read_bytes(), type=list[Batch])
