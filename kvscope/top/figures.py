"""The figures of one engine on a page of metrics, by the catalogue's names.

What a page does not have is None or empty, never 0.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from kvscope.diagnosis.scrape import Sample, ScrapedPage, check_labels, total


class EngineName(NamedTuple):
    """The labels of one engine."""

    model_name: str
    engine: str


class Buckets(NamedTuple):
    """Observations of a histogram: `counts[i]` up to `bounds[i]`, and one more above them all."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]


def engines_of(page: ScrapedPage) -> list[EngineName]:
    """The engines that the page names, in its order."""
    found: dict[EngineName, None] = {}
    for name, samples in page.by_name.items():
        if name.startswith("kvscope_"):
            for labels, _ in samples:
                if "engine" in labels and "model_name" in labels:
                    found[EngineName(labels["model_name"], labels["engine"])] = None
    return list(found)


class Figures:
    """The samples of one engine, and those that belong to the whole server."""

    def __init__(self, page: ScrapedPage, engine: EngineName) -> None:
        self._page = page
        self._engine = engine

    def value(self, name: str, **labels: str) -> float | None:
        """As `total`."""
        return total(self._own(name), name, labels)

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """Sums by the values of one label, in the order of the page; empty without samples."""
        check_labels(name, (label, *labels))
        sums: dict[str, float] = {}
        for having, value in self._own(name):
            if label in having and labels.items() <= having.items():
                sums[having[label]] = sums.get(having[label], 0.0) + value
        return sums

    def info(self, name: str, **labels: str) -> Mapping[str, str]:
        """All labels of the first such sample; empty without one."""
        check_labels(name, labels)
        for having, _ in self._own(name):
            if labels.items() <= having.items():
                return having
        return {}

    def buckets(self, name: str) -> Buckets | None:
        """A histogram's observations so far; None without one."""
        check_labels(name, ())
        sums: dict[float, float] = defaultdict(float)
        for having, value in self._own(f"{name}_bucket"):
            sums[float(having["le"])] += value
        if not sums:
            return None
        bounds = sorted(sums)
        below = [0.0, *(sums[bound] for bound in bounds)]
        return Buckets(
            tuple(bounds[:-1]), tuple(later - earlier for earlier, later in pairwise(below))
        )

    def _own(self, name: str) -> Iterator[Sample]:
        for having, value in self._page.samples(name):
            if having.get("engine", self._engine.engine) == self._engine.engine and (
                having.get("model_name", self._engine.model_name) == self._engine.model_name
            ):
                yield having, value
