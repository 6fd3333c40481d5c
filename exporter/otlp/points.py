"""Families of the page as OpenTelemetry's metrics: sums, gauges, histograms, and units."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import inf
from typing import NamedTuple

from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    Sum,
)
from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample

from exporter.catalogue import CATALOGUE
from exporter.catalogue import Metric as Row
from exporter.otlp.attributes import Attributes, Facts, attributes_of
from exporter.otlp.starts import Starts

_UNITS = {
    "": "",
    "seconds": "s",
    "bytes": "By",
    "ratio": "1",
    "celsius": "Cel",
    "watts": "W",
    "joules": "J",
    "hertz": "Hz",
    "batches": "{batch}",
    "losses": "{loss}",
    "processes": "{process}",
    "retries": "{retry}",
}
"""Any other unit counts things, and is written in braces, in the singular."""


def unit_of(row: Row) -> str:
    """The unit of a row in OpenTelemetry."""
    if row.otel_name == "hw.status":
        return "1"
    known = _UNITS.get(row.unit)
    return f"{{{row.unit.removesuffix('s')}}}" if known is None else known


CUMULATIVE = AggregationTemporality.CUMULATIVE

_ROWS = {row.family: row for row in CATALOGUE if row.otel_name}
_UP_DOWN = frozenset({"hw.gpu.memory.limit", "hw.gpu.memory.usage", "hw.status"})
"""Gauges of ours that are sums in the conventions, since they add up over devices."""
_TRACE_ID = re.compile("[0-9a-f]{32}")


def metrics_of(
    families: Iterable[Family], facts: Facts, starts: Starts, now_ns: int
) -> Iterator[Metric]:
    """Every family with a name in OpenTelemetry; one without series has no metric."""
    for family in families:
        row = _ROWS.get(family.name)
        if row is None or not family.samples:
            continue
        points = _Points(row, facts, starts, now_ns)
        data: Sum | Gauge | Histogram
        if row.kind == "histogram":
            data = Histogram(points.of_histograms(family.samples), CUMULATIVE)
        elif row.kind == "counter":
            data = Sum(points.of_numbers(family.samples), CUMULATIVE, is_monotonic=True)
        elif row.otel_name in _UP_DOWN:
            data = Sum(points.of_numbers(family.samples), CUMULATIVE, is_monotonic=False)
        else:
            data = Gauge(points.of_numbers(family.samples))
        yield Metric(row.otel_name, row.help, unit_of(row), data)
    starts.end_collection(now_ns)


class _Bucket(NamedTuple):
    bound: float
    observations: int
    sample: Sample


class _Points:
    """The points of one family at one moment."""

    def __init__(self, row: Row, facts: Facts, starts: Starts, now_ns: int) -> None:
        self._row = row
        self._facts = facts
        self._starts = starts
        self._now_ns = now_ns
        # Counters of other programs were not 0 when we began to look.
        self._is_ours = bool(row.events) or row.group == "self"

    def of_numbers(self, samples: Sequence[Sample]) -> list[NumberDataPoint]:
        points = []
        for sample in samples:
            attributes = attributes_of(self._row, sample.labels, self._facts)
            value = float(sample.value)
            if self._row.otel_name == "hw.status":  # a series for each state, which are 0 or 1
                points.append(self._number({**attributes, "hw.state": "ok"}, value))
                points.append(self._number({**attributes, "hw.state": "failed"}, 1.0 - value))
            else:
                points.append(self._number(attributes, value))
        return points

    def of_histograms(self, samples: Sequence[Sample]) -> list[HistogramDataPoint]:
        """One point for each set of labels, whose samples may come in any order."""
        buckets: dict[tuple[tuple[str, str], ...], list[_Bucket]] = {}
        sums: dict[tuple[tuple[str, str], ...], float] = {}
        for sample in samples:
            key = tuple((name, text) for name, text in sample.labels.items() if name != "le")
            if sample.name.endswith("_bucket"):
                bucket = _Bucket(float(sample.labels["le"]), int(sample.value), sample)
                buckets.setdefault(key, []).append(bucket)
            elif sample.name.endswith("_sum"):
                sums[key] = float(sample.value)
        return [self._histogram(dict(key), rows, sums[key]) for key, rows in buckets.items()]

    def _number(self, attributes: Attributes, value: float) -> NumberDataPoint:
        start_ns = 0
        if self._row.kind == "counter":
            start_ns = self._start_ns(attributes, value)
        elif self._row.otel_name in _UP_DOWN:
            start_ns = self._starts.began_ns
        return NumberDataPoint(attributes, start_ns, self._now_ns, value)

    def _histogram(
        self, labels: dict[str, str], buckets: list[_Bucket], total: float
    ) -> HistogramDataPoint:
        buckets.sort(key=lambda bucket: bucket.bound)
        assert buckets[-1].bound == inf, self._row.name
        attributes = attributes_of(self._row, labels, self._facts)
        below = [0, *(bucket.observations for bucket in buckets)]
        count = below[-1]
        return HistogramDataPoint(
            attributes,
            self._start_ns(attributes, count),
            self._now_ns,
            count,
            total,
            [upto - before for before, upto in pairwise(below)],
            [bucket.bound for bucket in buckets[:-1]],
            # Not known: the library writes no field for None, whatever its types say.
            min=None,  # type: ignore[arg-type]
            max=None,  # type: ignore[arg-type]
            exemplars=[e for b in buckets if (e := _exemplar(b.sample)) is not None],
        )

    def _start_ns(self, attributes: Attributes, value: float) -> int:
        series = (self._row.otel_name, *sorted(attributes.items()))
        return self._starts.start_ns(series, value, self._now_ns, is_ours=self._is_ours)


def _exemplar(sample: Sample) -> Exemplar | None:
    """The exemplar's trace; its span is not known, hence 0."""
    if sample.exemplar is None or not sample.exemplar.timestamp:
        return None
    trace = sample.exemplar.labels["trace_id"]
    if not _TRACE_ID.fullmatch(trace):
        return None
    seconds = float(sample.exemplar.timestamp)
    return Exemplar({}, float(sample.exemplar.value), round(seconds * 1e9), 0, int(trace, 16))
