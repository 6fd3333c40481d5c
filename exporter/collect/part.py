"""A part of an engine's page: one fold, and the families read from it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from prometheus_client.core import Metric as Family

from exporter.collect.families import Families
from exporter.fold import Fold, Folds
from kvscope_events.events import Hello

F = TypeVar("F", bound=Fold)


@dataclass(frozen=True, slots=True)
class Part(Generic[F]):
    """Parts stand or fall alone: one that raises is absent, counted, and logged once."""

    group: str
    """Group of its families in the catalogue; value of the label `part` of its errors."""
    fold: type[F]
    """What it is read from; a fold that was given up takes its parts with it."""
    collect: Callable[[Families, F, Hello], Iterable[Family]]

    def read(self, families: Families, folds: Folds, engine: Hello) -> Iterable[Family]:
        """The families as they are now; the caller holds the fold still."""
        return self.collect(families, folds[self.fold], engine)
