"""The protocol of what takes one engine's batches in order; a fold is one."""

from typing import Protocol

from kvscope_events.events import Batch


class Listener(Protocol):
    """Called by one thread at a time. A listener that raises is given up; the others go on."""

    @property
    def name(self) -> str:
        """Value of the label `fold` in the metrics of its cost and errors."""
        ...

    def on_batch(self, batch: Batch) -> None:
        """Take one step's events."""
        ...

    @property
    def num_pending(self) -> int:
        """How much is remembered until an event says that it has ended; `on_gap` forgets it."""
        ...

    def on_gap(self) -> None:
        """Batches were lost before the next one: what depends on them is unknown from now on."""
        ...
