"""One question about one engine, answered from its folds."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from kvscope_events.events import Hello
from kvscope_exporter.clock import Clock
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.state import Fold, Folds, TimedSample
from kvscope_exporter.state.timeline import Timeline

T = TypeVar("T")


class UnknownError(Exception):
    """The answer is unknown; `str()` says why, and what would change that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMemory:
    """One process's report of device memory, copied."""

    hello: Hello
    samples: Mapping[str | None, Sequence[TimedSample]]
    activation_peaks: Mapping[str, int]
    startup_terms: Mapping[str, int]
    is_here: bool
    """Whether its pid names the same process for us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryContext:
    """The data that a question may read. The folds are held meanwhile."""

    hello: Hello
    folds: Folds
    """Only the folds that the question names."""
    machine: Machine
    clock: Clock
    processes: Sequence[ProcessMemory] = ()
    """The whole server's: its engines, and processes that report memory only for one of them."""
    timeline: Timeline = field(default_factory=Timeline)
    """The engine's last half hour, its earlier sessions included."""
    silent_since_ns: int | None = None
    """When an engine that is gone was last heard, 0: never; None: it is there."""


def _as_read(answer: Any) -> Any:
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Generic[T]):
    """Served at `/api/NAME`; T: type of the answer."""

    name: str
    summary: str
    """One line for the list of questions."""
    events: tuple[str, ...]
    """The events that a source must report, all of them."""
    folds: tuple[type[Fold], ...]
    """Folds that it reads; if one of them has failed, it cannot be answered."""
    read: Callable[[QueryContext], Any]
    """Gives the answer, or its raw material; the folds are held meanwhile. Raises UnknownError."""
    finish: Callable[[Any], T] = _as_read
    """Makes the answer from what was read, after the folds are released: for slow work."""
    needs_state: bool = True
    """False: it is answered for an engine that is gone, too."""
    counted: tuple[str, ...] = ()
    """The events of a counted pool from which it can be answered as well; empty: it needs blocks
    with numbers, or has no need of blocks at all."""

    def unavailable(self, tells: Collection[str]) -> list[str]:
        """The events that it lacks, of those that a source reports."""
        is_counted = bool(self.counted) and "PoolCounted" in tells
        return sorted(set(self.counted if is_counted else self.events).difference(tells))
