"""A part of what is kept about an engine: one fold, and the families read from it, if any."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from prometheus_client.core import Metric as Family

from exporter.collect.families import Families
from exporter.fold import Fold, Folds
from kvscope_events.events import Hello

F = TypeVar("F", bound=Fold)
Outlet = Literal["page", "otlp"]
"""Where families go: onto a page for Prometheus, or to an OTLP endpoint."""
PAGE: frozenset[Outlet] = frozenset({"page"})
OTLP: frozenset[Outlet] = frozenset({"otlp"})


@dataclass(frozen=True, slots=True)
class Part(Generic[F]):
    """A part that raises is absent, counted and logged once; it does not affect the others."""

    group: str
    """The group of its families in the catalogue, or of its own without families; the log names it
    when the part fails."""
    fold: type[F]
    """The fold that it is read from; when a fold is given up, its parts are absent as well."""
    collect: Callable[[Families, F, Hello], Iterable[Family]] | None = None
    """None: the fold is read by questions, or for the page as a whole."""
    outlets: frozenset[Outlet] = PAGE | OTLP

    def read(self, families: Families, folds: Folds, engine: Hello) -> Iterable[Family]:
        """Reads the families from the fold, which the caller holds meanwhile."""
        return () if self.collect is None else self.collect(families, folds[self.fold], engine)
