"""The protocol of a source of batches: for the pipeline, and for a page's families about it."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from kvscope_events.events import Batch
from kvscope_exporter.sources.attachments import SourceKind


class Source(Protocol):
    """Taken from by one thread at a time. It stamps `arrived_ns` with this process's clock."""

    @property
    def kind(self) -> SourceKind: ...

    @property
    def endpoint(self) -> str:
        """Value of the label `endpoint`; empty for an engine in this process."""
        ...

    @property
    def session(self) -> str:
        """Session of the batch last taken. A change means a new producer: all state starts over."""
        ...

    @property
    def up(self) -> bool:
        """Whether the producer was heard recently."""
        ...

    @property
    def superseded(self) -> bool:
        """Whether another producer has been heard, no batch of it has come yet, and all those of
        the former one have been taken."""
        ...

    @property
    def state_known(self) -> bool:
        """Whether the batches taken so far give the engine's state."""
        ...

    @property
    def last_message_ns(self) -> int | None:
        """Arrival of the newest message, on this process's monotonic clock."""
        ...

    @property
    def batches_dropped(self) -> int: ...

    @property
    def gaps(self) -> int:
        """Times that batches were missing, whether or not they were recovered."""
        ...

    @property
    def decode_errors(self) -> Mapping[str, int]:
        """Frames and events that could not be used, by kind; all kinds from the start."""
        ...

    def take(self) -> tuple[Batch, int] | None:
        """The next batch and the number missing just before it; None: no batch now."""
        ...

    def request_snapshot(self) -> None:
        """Ask for the whole state in one of the next batches, where the producer can be asked.

        For the thread that takes; may be repeated until it comes."""
        ...

    def wait(self, timeout: float) -> bool:
        """Wait until a batch may be available; True if so."""
        ...

    def wake(self) -> None:
        """Interrupt a `wait` in progress; any thread may call it."""
        ...

    def close(self) -> None:
        """Release what the source holds; nothing can be taken afterwards."""
        ...


class SourceStatus(NamedTuple):
    """A source's state, read once: messages go on arriving while a page is made, and the page and
    its recording must agree. The fields are those of a recording's `Heard`, in its order."""

    session: str
    up: bool
    state_known: bool
    last_message_ns: int | None
    batches_dropped: int
    gaps: int
    decode_errors: dict[str, int]

    @classmethod
    def of(cls, source: Source) -> "SourceStatus":
        return cls(
            source.session,
            source.up,
            source.state_known,
            source.last_message_ns,
            source.batches_dropped,
            source.gaps,
            dict(source.decode_errors),
        )
