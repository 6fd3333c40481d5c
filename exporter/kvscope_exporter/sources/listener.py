"""The protocol for listeners, which take one engine's batches in order; a fold is one."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from kvscope_events.events import Batch


class Listener(Protocol):
    """Called by one thread at a time. A listener that raises is disabled; the others continue."""

    @property
    def name(self) -> str:
        """Value of the label `fold` in the metrics of its cost and errors."""
        ...

    def on_batch(self, batch: Batch) -> None:
        """Take one step's events."""
        ...

    @property
    def num_pending(self) -> int:
        """Number of items remembered until an event ends them; `on_gap` forgets them."""
        ...

    @property
    def wants_snapshot(self) -> bool:
        """Whether it lacks the pool's state; a gap of the source it need not report."""
        ...

    def on_gap(self) -> None:
        """Batches were lost before the next one: state that depends on them is now unknown."""
        ...


class Part(Protocol):
    """A part of a listener, or a listener."""

    @property
    def name(self) -> str:
        """Value of the label `fold`."""
        ...


@runtime_checkable
class Composite(Listener, Protocol):
    """A listener that hands batches on to parts; one that raises does not affect the others."""

    @property
    def parts(self) -> Sequence[Part]:
        """Those that failed included."""
        ...

    def failed(self, part: object) -> bool:
        """Whether this part has failed."""
        ...

    def costs(self) -> tuple[dict[str, int], list[str]]:
        """Nanoseconds by part, and the names of those that failed, since the last call."""
        ...
