"""One question about one engine, answered from its folds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from exporter.clock import Clock
from exporter.fold import Fold, Folds, TimedSample
from exporter.machine.machine import Machine
from kvscope_events.events import Hello

T = TypeVar("T")


class UnknownError(Exception):
    """The answer cannot be known; `str()` says why, and what would change that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMemory:
    """What one process of the server reports of device memory, copied."""

    hello: Hello
    samples: Mapping[str | None, Sequence[TimedSample]]
    activation_peaks: Mapping[str, int]
    startup_terms: Mapping[str, int]
    is_here: bool
    """Its pid names the same process for us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a question may read. The folds are held while it does."""

    hello: Hello
    folds: Folds
    """Those that the question names; there are no others here."""
    machine: Machine
    clock: Clock
    processes: Sequence[ProcessMemory] = ()
    """For the whole server: its engines, and those that report memory only for one of them."""


def _as_read(answer: Any) -> Any:
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Generic[T]):
    """Served at `/api/NAME`; T: what it is answered with."""

    name: str
    summary: str
    """One line for the list of questions."""
    events: tuple[str, ...]
    """The events that a source must report, all of them."""
    folds: tuple[type[Fold], ...]
    """Those that it reads; when one of them is given up, it cannot be answered."""
    read: Callable[[Asked], Any]
    """The answer, or what it is made of; the folds are held meanwhile. Raises UnknownError."""
    finish: Callable[[Any], T] = _as_read
    """Makes the answer of what was read, when the folds go on: for what takes long."""
