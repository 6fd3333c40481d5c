"""The source for an engine in this process: a subscription to its bus.

Gaps show in the batches' numbers; after a snapshot the state is known again.
"""

from collections.abc import Mapping
from types import MappingProxyType

from exporter.sources.attachments import SourceKind
from kvscope_events.bus import Subscription
from kvscope_events.events import Batch, PoolCounted, PoolCreated, PoolSnapshot

_NO_ERRORS: Mapping[str, int] = MappingProxyType({})


class InProcessSource:
    """Requests a snapshot at once, since the engine may already be running, and after every gap."""

    kind: SourceKind = "inprocess"
    endpoint = ""
    session = ""
    up = True
    superseded = False
    decode_errors = _NO_ERRORS
    """Empty: nothing is decoded here."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self.batches_dropped = 0
        self.gaps = 0
        self.state_known = False
        self.last_message_ns: int | None = None
        subscription.request_snapshot()

    def wait(self, timeout: float) -> bool:
        return self._subscription.wait(timeout)

    def wake(self) -> None:
        self._subscription.wake()

    def request_snapshot(self) -> None:
        self._subscription.request_snapshot()

    def take(self) -> tuple[Batch, int] | None:
        taken = self._subscription.take()
        if taken is None:
            return None
        batch, lost = taken
        if lost:
            self.batches_dropped += lost
            self.gaps += 1
            self.state_known = False
            self._subscription.request_snapshot()
        if not self.state_known:
            self.state_known = any(
                isinstance(event, PoolCreated | PoolSnapshot | PoolCounted)
                for event in batch.events
            )
        self.last_message_ns = batch.arrived_ns
        return taken

    def close(self) -> None:
        """Do nothing: the bus outlives its subscribers."""
