"""A source on real sockets, with the page that it makes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kvscope_exporter.clock import Clock
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.sources.kv_events import KvEventsSource
from kvscope_exporter.targets.exporter import Exporter
from kvscope_exporter.targets.target import Target
from tests.exporter.page import families
from tests.support.waiting import wait_for


class Watched:
    """One server's stream and its page."""

    def __init__(self, directory: Path, *, replay: bool = True, **options: Any) -> None:
        self.endpoint = f"ipc://{directory}/events"
        self.replay = f"ipc://{directory}/replay"
        self.source = KvEventsSource(
            self.endpoint,
            replay=self.replay if replay else None,
            **{"server": "vllm", "engine": "0", "clock": Clock(), **options},
        )
        target = Target(self.source, compat=(), clock=Clock())
        self.exporter = Exporter([target], machine=Machine(), clock=Clock(), process=False)
        self.exporter.start()

    def shown(self, name: str, **labels: str) -> float | None:
        """The value on a fresh page; None where it is absent."""
        family = families(self.exporter).get(name.removesuffix("_total"))
        if family is None:
            return None
        values = [s.value for s in family.samples if labels.items() <= s.labels.items()]
        return values[0] if values else None

    def blocks(self, tier: str = "device") -> float | None:
        return self.shown("kvscope_kv_tier_blocks", tier=tier)

    def expect(self, blocks: float | None, *, known: bool = True, tier: str = "device") -> None:
        """Wait until the page shows this many blocks; None: none are shown."""
        wait_for(
            lambda: self.source.state_known == known and self.blocks(tier) == blocks,
            f"{blocks} blocks, known: {known}",
        )


@contextmanager
def watched(directory: Path, **options: Any) -> Iterator[Watched]:
    """Closed at the end."""
    made = Watched(directory, **options)
    try:
        yield made
    finally:
        made.exporter.stop()
