"""An engine in this process: its bus, gaps found by sequence, state known again by a snapshot."""

from typing import ClassVar

from kvscope_events.bus import Subscription
from kvscope_events.events import Batch, PoolCreated, PoolSnapshot


class InProcessSource:
    """Asks for a snapshot at once, since the engine may have run before, and after every gap."""

    name: ClassVar[str] = "inprocess"

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self.lost = 0
        self.batches_dropped = 0
        self.gaps = 0
        self.state_known = False
        self.last_message_ns: int | None = None
        self._dropped = subscription.dropped
        subscription.request_snapshot()

    def wait(self, timeout: float) -> bool:
        return self._subscription.wait(timeout)

    def take(self) -> Batch | None:
        batch = self._subscription.take()
        if batch is None:
            return None
        dropped = self._subscription.dropped
        # A dead engine's last flushes may come from several threads and repeat a number: no loss.
        self.lost = max(0, dropped - self._dropped)
        self._dropped = dropped
        if self.lost:
            self.batches_dropped += self.lost
            self.gaps += 1
            self.state_known = False
            self._subscription.request_snapshot()
        if not self.state_known:
            self.state_known = any(
                isinstance(event, PoolCreated | PoolSnapshot) for event in batch.events
            )
        self.last_message_ns = batch.time_ns
        return batch
