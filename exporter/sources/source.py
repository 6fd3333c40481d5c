"""What the pipeline needs of a source of batches."""

from typing import Protocol

from kvscope_events.events import Batch


class Source(Protocol):
    """One thread at a time takes."""

    lost: int
    """Batches missing just before the one last taken."""
    batches_dropped: int
    gaps: int
    """Times that batches were missing."""
    state_known: bool
    last_message_ns: int | None
    """When the last batch was sent, on this process's monotonic clock; None before the first."""

    @property
    def name(self) -> str:
        """Value of the label `source`."""
        ...

    def take(self) -> Batch | None:
        """The next batch, or None while there is none."""
        ...

    def wait(self, timeout: float) -> bool:
        """Wait until a batch may be there; True if so."""
        ...
