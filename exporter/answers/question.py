"""One question about one engine, answered from its folds."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from exporter.clock import Clock
from exporter.fold import Folds
from exporter.machine import Machine
from kvscope_events.events import Hello


class UnknownError(Exception):
    """The answer cannot be known; `str()` says why, and what would change that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a question may read. The folds are held while it does."""

    hello: Hello
    folds: Folds
    machine: Machine
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Served at `/api/NAME`."""

    name: str
    summary: str
    """One line for the list of questions."""
    events: tuple[str, ...]
    """The events that a source must tell, all of them."""
    answer: Callable[[Asked], msgspec.Struct]
    """Raises UnknownError."""
