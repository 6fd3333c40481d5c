"""Shared by cases of servers' pages: a page, and all that must be read from it."""

from collections.abc import Mapping
from dataclasses import dataclass

from kvscope_events.vocabulary import ServerKind
from kvscope_exporter.catalogue import metric
from kvscope_exporter.scrape.mapping import PageMapper, PageReading
from kvscope_exporter.scrape.tables import TABLES

NOW = 1_795_000_000.0
"""Unix time at which a case is read."""
Histogram = tuple[float, ...]
"""Cumulative counts by bound, then the sum."""
Series = Mapping[str, float | Histogram]
Expected = Mapping[tuple[str, str], Series]
"""By model_name and engine: family, with its own labels' values behind a colon, to its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    kind: ServerKind
    page: str
    expected: Expected
    """All of it: a family that is not here must be absent."""
    num_contradictory: int = 0
    num_malformed: int = 0


def histogram(name: str, labels: str, *counts: float, total: float) -> str:
    """A family with bounds 0.5, 1, … and +Inf."""
    bounds = [*(f"{0.5 * 2**i:g}" for i in range(len(counts) - 1)), "+Inf"]
    inside = f"{labels}," if labels else ""
    lines = [f"# HELP {name} A help.", f"# TYPE {name} histogram"]
    lines += [
        f'{name}_bucket{{{inside}le="{bound}"}} {count}'
        for bound, count in zip(bounds, counts, strict=True)
    ]
    around = f"{{{labels}}}" if labels else ""
    lines += [f"{name}_sum{around} {total}", f"{name}_count{around} {counts[-1]}"]
    return "\n".join(lines) + "\n"


def read(case: Case) -> list[PageReading]:
    """By each table of the kind."""
    return [PageMapper(table).read(case.page, now=NOW) for table in TABLES[case.kind]]


def flat(readings: list[PageReading]) -> Expected:
    """As a case states it."""
    found: dict[tuple[str, str], dict[str, float | Histogram]] = {}
    for page in readings:
        for engine, reading in page.engines.items():
            series = found.setdefault(engine, {})
            for family, values in reading.values.items():
                for key, value in values.items():
                    metric(family)
                    series[":".join((family, *(word for word in key if word)))] = value
            for family, buckets in reading.histograms.items():
                series[family] = (*(count for _, count in buckets.counts), buckets.total)
    return found
