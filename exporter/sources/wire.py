"""The source for an engine in another process: its wire, with a queue bounded by bytes."""

import msgspec

from exporter.clock import Clock
from exporter.sources.source import SourceKind
from kvscope_events.events import Batch
from kvscope_events.wire.subscriber import WireSubscriber


class WireSource:
    """Reads from construction to `close`; construction raises EndpointError.

    A reader too slow for the queue falls back on the batches that the publisher still holds, and
    loses only older ones.
    """

    kind: SourceKind = "wire"

    def __init__(self, endpoint: str, clock: Clock, *, allow_remote: bool = False) -> None:
        self._subscriber = WireSubscriber(
            endpoint, clock_ns=clock.monotonic_ns, allow_remote=allow_remote
        )
        self.endpoint = endpoint
        self.session = ""

    @property
    def up(self) -> bool:
        return self._subscriber.up

    @property
    def superseded(self) -> bool:
        return self._subscriber.superseded

    @property
    def state_known(self) -> bool:
        return self._subscriber.state_known

    @property
    def last_message_ns(self) -> int | None:
        """Arrival of the last message, heartbeats among them."""
        return self._subscriber.last_message_ns

    @property
    def batches_dropped(self) -> int:
        return self._subscriber.batches_lost

    @property
    def gaps(self) -> int:
        return self._subscriber.gaps

    @property
    def decode_errors(self) -> dict[str, int]:
        """Counts by kind; all of `DECODE_ERROR_KINDS` are present from the start."""
        return self._subscriber.decode_errors

    def take(self) -> tuple[Batch, int] | None:
        taken = self._subscriber.take()
        if taken is None:
            return None
        self.session = taken.session
        # It was decoded just now and is not shared yet: setting the field is cheaper than a copy.
        msgspec.structs.force_setattr(taken.batch, "arrived_ns", taken.arrived_ns)
        return taken.batch, taken.lost

    def wait(self, timeout: float) -> bool:
        return self._subscriber.wait(timeout)

    def wake(self) -> None:
        self._subscriber.wake()

    def close(self) -> None:
        self._subscriber.close()
