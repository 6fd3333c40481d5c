"""Turns rows of the catalogue and values into families; label sets are built once and kept."""

import logging
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache

from prometheus_client.core import Metric as Family
from prometheus_client.samples import Exemplar, Sample
from prometheus_client.utils import floatToGoString

from kvscope_exporter.catalogue import Metric, metric
from kvscope_exporter.clock import Clock
from kvscope_exporter.state import Histogram
from kvscope_exporter.state.histogram import Bucket

logger = logging.getLogger(__name__)

Values = Mapping[tuple[str, ...], float]
NO_ENGINE = ("", "")
"""Values of the labels of an engine, for what belongs to none."""

_MOST_LABEL_SETS = 4096
"""Several times a page's number; labels without a closed set change their values over time."""
_bound_text = lru_cache(1024)(floatToGoString)
"""Bounds of the catalogue's buckets as their labels."""


class LabelSet(dict[str, str]):
    """The labels of a series, kept from page to page; never changed once a sample has them."""

    text: str | None = None
    """As a page writes them, once it has."""


class Families:
    """Builds Prometheus families.

    constants: labels with the same value in every family that declares them, unless its closed set
    excludes the value; empty values are left out.
    """

    def __init__(self, constants: Mapping[str, str], clock: Clock) -> None:
        self._clock = clock
        self._constants = dict(constants)
        self._left_out: set[str] = set()
        self._labels: dict[tuple[str, tuple[str, ...]], LabelSet] = {}

    def age(self, monotonic_ns: int) -> float:
        """Seconds since a monotonic reading of this process."""
        return max(0, self._clock.now().monotonic_ns - monotonic_ns) / 1e9

    def since(self, wall_seconds: float) -> float:
        """Seconds since a Unix time that this process took from its own clock."""
        return max(0.0, self._clock.now().wall_ns / 1e9 - wall_seconds)

    def single(self, name: str, value: float) -> Family:
        """A family of one series."""
        return self.table(name, {(): value})

    def column(self, name: str, values: Mapping[str, float]) -> Family:
        """A family with one label, whose values are a closed set."""
        return self.table(name, {(value,): number for value, number in values.items()})

    def table(self, name: str, values: Values) -> Family:
        """A family by the values of its other labels, in the order of the catalogue.

        A label with an empty value is left out.
        """
        row = metric(name)
        family = _empty(row)
        for key, number in values.items():
            if row.can_be(number):
                family.samples.append(Sample(row.name, self._labels_of(row, key), number))
            else:
                self._leave_out(row, key, number)
        return family

    def fact(self, name: str, *facts: Mapping[str, str]) -> Family:
        """A family of facts: each is a 1 with its values as labels; empty values are left out."""
        row = metric(name)
        family = _empty(row)
        constants = self._constants_of(row)
        for labels in facts:
            unknown = labels.keys() - row.labels.keys()
            assert not unknown, f"{name} has no labels {sorted(unknown)}"
            family.samples.append(Sample(row.name, {**constants, **labels}, 1))
        return family

    def histogram(
        self, name: str, histogram: Histogram, bounds: tuple[float, ...] | None = None
    ) -> Family:
        """A histogram at the catalogue's bounds, or at fewer."""
        row = metric(name)
        family = _empty(row)
        samples = family.samples
        buckets = histogram.at(row.buckets if bounds is None else bounds)
        for bucket in buckets:
            labels = self._labels_of(row, ("le", _bound_text(bucket.bound)))
            exemplar = _exemplar(bucket)
            samples.append(
                Sample(f"{row.name}_bucket", labels, bucket.observations, None, exemplar)
            )
        labels = self._labels_of(row, ())
        samples.append(Sample(f"{row.name}_count", labels, buckets[-1].observations))
        samples.append(Sample(f"{row.name}_sum", labels, histogram.total))
        return family

    def summary(self, name: str, histogram: Histogram) -> Family:
        """The sum and the count of a histogram, without buckets."""
        return self.summaries(name, {(): (sum(histogram.counts), histogram.total)})

    def summaries(self, name: str, values: Mapping[tuple[str, ...], tuple[float, float]]) -> Family:
        """Counts and sums by the values of the other labels, in the order of the catalogue."""
        row = metric(name)
        family = _empty(row)
        for key, (count, total) in values.items():
            labels = self._labels_of(row, key)
            family.samples.append(Sample(f"{row.name}_count", labels, count))
            family.samples.append(Sample(f"{row.name}_sum", labels, total))
        return family

    def histograms(self, name: str, histograms: Mapping[tuple[str, ...], Histogram]) -> Family:
        """Histograms at the catalogue's bounds, by the values of their further labels."""
        row = metric(name)
        family = _empty(row)
        samples = family.samples
        for key, histogram in histograms.items():
            labels = self._labels_of(row, key)
            buckets = histogram.at(row.buckets)
            for bucket in buckets:
                at, exemplar = {**labels, "le": _bound_text(bucket.bound)}, _exemplar(bucket)
                samples.append(
                    Sample(f"{row.name}_bucket", at, bucket.observations, None, exemplar)
                )
            samples.append(Sample(f"{row.name}_count", labels, buckets[-1].observations))
            samples.append(Sample(f"{row.name}_sum", labels, histogram.total))
        return family

    def observed(self, name: str, counts: Iterable[tuple[float, float]], total: float) -> Family:
        """A histogram with the bounds of its observer; counts: cumulative, by bound."""
        row = metric(name)
        family = _empty(row)
        observations = 0.0
        for bound, observations in counts:
            text = floatToGoString(bound)  # type: ignore[no-untyped-call]
            labels = self._labels_of(row, ("le", text))
            family.samples.append(Sample(f"{row.name}_bucket", labels, observations))
        labels = self._labels_of(row, ())
        family.samples.append(Sample(f"{row.name}_count", labels, observations))
        family.samples.append(Sample(f"{row.name}_sum", labels, total))
        return family

    def _leave_out(self, row: Metric, key: tuple[str, ...], number: float) -> None:
        """A peer's events can be valid by the contract and still be nonsense."""
        if row.name not in self._left_out:
            self._left_out.add(row.name)
            logger.error(
                "%s cannot be %g and is left out: the events of engine %s contradict each other",
                row.name,
                number,
                self._labels_of(row, key),
            )

    def _constants_of(self, row: Metric) -> dict[str, str]:
        return {k: v for k, v in self._constants.items() if v and self._is_constant(row, k)}

    def _is_constant(self, row: Metric, label: str) -> bool:
        if label not in row.labels or label not in self._constants:
            return False
        closed = row.labels[label]
        return closed is None or self._constants[label] in closed

    def _labels_of(self, row: Metric, key: tuple[str, ...]) -> LabelSet:
        labels = self._labels.get((row.name, key))
        if labels is None:
            labels = LabelSet(self._constants_of(row))
            if key[:1] == ("le",):
                labels["le"] = key[1]
            else:
                others = (label for label in row.labels if not self._is_constant(row, label))
                for label, value in zip(others, key, strict=True):
                    closed = row.labels[label]
                    known = closed is None or not value or value in closed
                    assert known, f"{row.name}: {label}={value!r} is not declared"
                    if value:
                        labels[label] = value
            if len(self._labels) >= _MOST_LABEL_SETS:
                self._labels.clear()
            self._labels[row.name, key] = labels
        return labels


def _exemplar(bucket: Bucket) -> Exemplar | None:
    if bucket.exemplar is None:
        return None
    wall_ns = bucket.exemplar.wall_ns
    return Exemplar(
        {"trace_id": bucket.exemplar.trace_id},
        bucket.exemplar.value,
        round(wall_ns / 1e9, 3) if wall_ns else None,
    )


def _empty(row: Metric) -> Family:
    return Family(*_heading(row.name))


@cache
def _heading(name: str) -> tuple[str, str, str, str]:
    row = metric(name)
    # OpenMetrics allows a unit only if the name ends with it; the library would append it.
    unit = row.unit if row.family.endswith(f"_{row.unit}") else ""
    return row.family, row.help, row.kind, unit
