"""A table: one kind of server's page in our names; rows are data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kvscope_events.vocabulary import ServerKind
from kvscope_exporter.catalogue import metric
from kvscope_exporter.scrape.labels import LastMoved, PassedHistogram
from kvscope_exporter.scrape.value import Series, Value

Worth = Literal["exact", "passed through", "bound"]
"""Exact: equals our own count. Passed through: the server's own definition, or its own buckets.
Bound: at least, or at most, our own count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One series of one of our families. Of several rows for a series, the first one whose samples
    are on the page counts."""

    family: str
    value: Value | PassedHistogram | LastMoved
    labels: Mapping[str, str] = field(default_factory=dict)
    """Values of the family's labels; a label that the server does not report is left out."""
    worth: Worth = "exact"
    reason: str = ""
    """The reason why it is not exact, or a remark: a phrase."""

    def __post_init__(self) -> None:
        row = metric(self.family)
        if (row.kind == "histogram") != isinstance(self.value, PassedHistogram):
            raise ValueError(f"{self.family}: a histogram is passed through, nothing else is")
        for label, value in self.labels.items():
            if value not in (row.labels.get(label) or ()):
                raise ValueError(f"{self.family} has no {label}={value!r}")
        if self.worth != "exact" and not self.reason:
            raise ValueError(f"{self.family}: {self.worth!r} needs a reason")

    @property
    def key(self) -> tuple[str, ...]:
        """Values of the family's labels beyond those of the engine, in the catalogue's order."""
        own = (label for label in metric(self.family).labels if label not in _OF_ENGINE)
        return tuple(self.labels.get(label, "") for label in own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Labels that identify a sample's engine, in order of preference."""

    model_name: tuple[str, ...] = ("model_name",)
    engine: tuple[str, ...] = ("engine",)
    ranks: tuple[str, ...] = ()
    """Labels of the processes of one engine; the lowest one speaks for all."""
    alone: str = "0"
    """Name of an engine if no sample states it; empty: without the label."""
    may_be_repeated: bool = True
    """Whether a gateway may repeat the page, with a label of its own for each of its workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    server: ServerKind
    rows: tuple[Row, ...]
    identity: Identity
    absent: Mapping[str, str] = field(default_factory=dict)
    """Reasons why expected families are missing from the page."""
    note: str = ""
    """A sentence on the server's page as a whole."""
    front_end: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    """Families, with the labels of their series, that the server's front end measures as its
    callers do. If a page has the family, events of the engine behind it no longer provide these
    series."""
    is_derived: bool = False
    """Whether its rows are those of other servers under other names; the note says which."""

    @property
    def names(self) -> frozenset[str]:
        """Every name of a sample that a row looks for."""
        return frozenset(name for row in self.rows for name in row.value.names())


def last_step(steps: Series) -> Row:
    """Time since the last step ended. steps: counts steps, or their work."""
    return Row(
        family="kvscope_last_step_age_seconds",
        value=LastMoved(steps),
        worth="bound",
        reason="lower bound: the step ended up to one reading of the page earlier",
    )


_OF_ENGINE = ("model_name", "engine")
