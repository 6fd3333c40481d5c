"""The figures of one engine on a page of metrics, by the catalogue's names.

What a page does not have is None or empty, never 0.
"""

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from kvscope.doctor.scrape import ScrapedPage, check_labels, total


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
        own = engine._asdict().items()
        self._samples = {
            name: [one for one in samples if all(one[0].get(k, v) == v for k, v in own)]
            for name, samples in page.by_name.items()
        }

    def value(self, name: str, **labels: str) -> float | None:
        """As `total`."""
        return total(self._samples.get(name, ()), name, labels)

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """Sums by the values of one label, in the order of the page; empty without samples."""
        check_labels(name, (label, *labels))
        sums: dict[str, float] = defaultdict(float)
        for having, value in self._samples.get(name, ()):
            if label in having and labels.items() <= having.items():
                sums[having[label]] += value
        return dict(sums)

    def info(self, name: str, **labels: str) -> Mapping[str, str]:
        """All labels of the first such sample; empty without one."""
        check_labels(name, labels)
        samples = self._samples.get(name, ())
        return next((having for having, _ in samples if labels.items() <= having.items()), {})

    def buckets(self, name: str) -> Buckets | None:
        """A histogram's observations so far; None without one."""
        check_labels(name, ())
        sums: dict[float, float] = defaultdict(float)
        for having, value in self._samples.get(f"{name}_bucket", ()):
            sums[float(having["le"])] += value
        bounds = sorted(sums)
        below = [0.0, *(sums[bound] for bound in bounds)]
        counts = tuple(later - earlier for earlier, later in pairwise(below))
        return Buckets(tuple(bounds[:-1]), counts) if sums else None
