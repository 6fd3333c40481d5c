"""One server's families as OpenTelemetry's metrics, under the names of its conventions or ours."""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Protocol

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

from kvscope_exporter.catalogue import CATALOGUE, metric
from kvscope_exporter.catalogue import Metric as Row
from kvscope_exporter.catalogue.otlp import ATTRIBUTES, CONSTANT, DIRECTIONS

Labels = Mapping[str, str]

_CUMULATIVE = AggregationTemporality.CUMULATIVE
_ROWS = {row.family: row for row in CATALOGUE if row.otel_name}
_UP_DOWN = frozenset({"hw.gpu.memory.limit", "hw.gpu.memory.usage", "hw.status"})
"""Gauges of ours that are sums in the conventions, since they add up over devices."""
_GPU_INFO = metric("kvscope_gpu_info").family
_TRACE_ID = re.compile("[0-9a-f]{32}")


class Observed(Protocol):
    """A server's exporter."""

    def collect_for_otlp(self) -> Iterator[Family]:
        """All families except those under other servers' names."""
        ...

    def server_kinds(self) -> Mapping[tuple[str, str], str]:
        """By model_name and engine."""
        ...


class Feed:
    """Remembers the start of each cumulative series, which OpenTelemetry wants with every point."""

    def __init__(self, exporter: Observed, began_ns: int) -> None:
        """began_ns: Unix time from which our own folds count."""
        self.exporter = exporter
        self._began_ns = self._last_ns = self._now_ns = began_ns
        self._known: dict[tuple[tuple[str, str], ...], tuple[int, float]] = {}
        self._seen = self._known.copy()
        """Start and last value of the series of the last collection, and of this one."""
        self._devices: dict[str, Labels] = {}
        self._providers: Mapping[tuple[str, str], str] = {}

    def collect(self, now_ns: int) -> Iterator[Metric]:
        """Every family with a name in OpenTelemetry, now; one without series has no metric."""
        families = [family for family in self.exporter.collect_for_otlp() if family.samples]
        self._providers = self.exporter.server_kinds()
        info = [family.samples for family in families if family.name == _GPU_INFO]
        self._devices = {one.labels["uuid"]: one.labels for samples in info for one in samples}
        self._now_ns, self._seen = now_ns, {}
        for family in families:
            row = _ROWS.get(family.name)
            if row is None:
                continue
            data: Sum | Gauge | Histogram
            if row.kind == "histogram":
                data = Histogram(list(self._histograms(row, family.samples)), _CUMULATIVE)
            elif row.kind == "counter" or row.otel_name in _UP_DOWN:
                points = list(self._numbers(row, family.samples))
                data = Sum(points, _CUMULATIVE, is_monotonic=row.kind == "counter")
            else:
                data = Gauge(list(self._numbers(row, family.samples)))
            yield Metric(row.otel_name, row.help, row.otel_unit, data)
        self._known, self._last_ns = self._seen, now_ns

    def _numbers(self, row: Row, samples: Iterable[Sample]) -> Iterator[NumberDataPoint]:
        for sample in samples:
            series = [(sample.labels, float(sample.value))]
            if row.otel_name == "hw.status":  # a series for each state, which are 0 or 1
                failed = {**sample.labels, "state": "failed"}, 1.0 - sample.value
                series = [({**sample.labels, "state": "ok"}, float(sample.value)), failed]
            for labels, value in series:
                attributes = self._attributes(row, labels)
                start_ns = self._began_ns if row.otel_name in _UP_DOWN else 0
                if row.kind == "counter":
                    start_ns = self._start_ns(row, attributes, value)
                yield NumberDataPoint(attributes, start_ns, self._now_ns, value)

    def _histograms(self, row: Row, samples: Iterable[Sample]) -> Iterator[HistogramDataPoint]:
        """One point for each set of labels, whose samples may come in any order."""
        found: dict[frozenset[tuple[str, str]], dict[str, Sample]] = {}
        for sample in samples:
            labels = frozenset(item for item in sample.labels.items() if item[0] != "le")
            bound = sample.labels.get("le", sample.name.rpartition("_")[2])
            found.setdefault(labels, {})[bound] = sample
        for labels, parts in found.items():
            bounds = sorted((b for b in parts if b not in ("sum", "count")), key=float)
            below = [0, *(int(parts[bound].value) for bound in bounds)]
            attributes = self._attributes(row, dict(labels))
            yield HistogramDataPoint(
                attributes,
                self._start_ns(row, attributes, below[-1]),
                self._now_ns,
                below[-1],
                float(parts["sum"].value),
                [upto - before for before, upto in pairwise(below)],
                [float(bound) for bound in bounds[:-1]],
                # Not known: the library writes no field for None, whatever its types say.
                min=None,  # type: ignore[arg-type]
                max=None,  # type: ignore[arg-type]
                exemplars=[found for bound in bounds for found in _exemplars(parts[bound])],
            )

    def _attributes(self, row: Row, labels: Labels) -> dict[str, str]:
        names = ATTRIBUTES.get(row.otel_name.partition(".")[0])
        if names is None:
            return dict(labels)
        engine = labels.get("model_name", ""), labels.get("engine", "")
        device = self._devices.get(labels.get("uuid", ""), {})
        known = {"provider": self._providers.get(engine, "other"), "vendor": "NVIDIA"}
        all_labels = {**known, **device, **labels}
        return CONSTANT.get(row.otel_name, {}) | {
            names[name]: DIRECTIONS.get(text, text)
            for name, text in all_labels.items()
            if text and name in names
        }

    def _start_ns(self, row: Row, attributes: Labels, value: float) -> int:
        """When the series was 0. One that falls was reset after the last collection."""
        series = ("", row.otel_name), *sorted(attributes.items())
        # Counters of other programs were not 0 when we began to look: their start is not known.
        is_ours = bool(row.events) or row.group == "self"
        start_ns, last = self._known.get(series, (self._began_ns if is_ours else self._now_ns, 0))
        self._seen[series] = self._last_ns if value < last else start_ns, value
        return self._seen[series][0]


def _exemplars(bucket: Sample) -> Iterator[Exemplar]:
    """The exemplar's trace; its span is not known, hence 0."""
    exemplar = bucket.exemplar
    if exemplar is not None and exemplar.timestamp:
        trace = exemplar.labels["trace_id"]
        if _TRACE_ID.fullmatch(trace):
            time_ns = round(float(exemplar.timestamp) * 1e9)
            yield Exemplar({}, float(exemplar.value), time_ns, 0, int(trace, 16))
