"""Exported metrics agree with the page, in OpenTelemetry's terms; decoded from the wire."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from kvscope_events.events import EngineEvent, FirstToken, RequestArrived, SequenceAdded
from kvscope_exporter.catalogue import CATALOGUE
from kvscope_exporter.catalogue import Metric as Row
from kvscope_exporter.otlp import library
from kvscope_exporter.otlp.feed import Feed
from kvscope_exporter.otlp.library import resource_of
from kvscope_exporter.state import buckets
from kvscope_exporter.targets.exporter import Exporter
from tests.exporter.machine import GIB, NOW_NS, UUID
from tests.exporter.page import HELLO, families, make_exporter, put, value
from tests.exporter.scenario import STEPS, TRACE, play
from tests.exporter.stream import ended, finished
from tests.otlp.receiver import attributes_in, metrics_in

BEGAN_NS = NOW_NS - 60 * 10**9


def sent(of: Feed, now_ns: int = NOW_NS) -> ExportMetricsServiceRequest:
    scope = ScopeMetrics(InstrumentationScope("kvscope"), list(of.collect(now_ns)), "")
    found = ResourceMetrics(resource_of("here:8000", {}, is_only=True), [scope], "")
    data = encode_metrics(MetricsData([found])).SerializeToString()
    return ExportMetricsServiceRequest.FromString(data)


@pytest.fixture
def exporter() -> Exporter:
    exporter, subscription = make_exporter()
    play(subscription)
    exporter.render()
    return exporter


@pytest.fixture
def metrics(exporter: Exporter) -> dict[str, Metric]:
    return metrics_in(sent(Feed(exporter, BEGAN_NS)))


def points_of(metric: Metric) -> Any:
    return getattr(metric, metric.WhichOneof("data")).data_points


def rows() -> Iterator[Row]:
    return (row for row in CATALOGUE if row.otel_name)


def test_every_family_of_the_page_is_sent_and_its_values_are_equal(
    exporter: Exporter, metrics: dict[str, Metric]
) -> None:
    shown = families(exporter)
    compared = 0
    volatile = ("kvscope_scrape_duration_seconds",)
    for row in rows():
        if row.family not in shown or not row.otel_name.startswith("kvscope."):
            continue
        metric = metrics[row.otel_name]
        assert metric.description == row.help
        family = shown[row.family]
        if row.kind == "histogram":
            (point,) = metric.histogram.data_points
            bounds = [s for s in family.samples if s.name.endswith("_bucket")]
            cumulative = [sum(point.bucket_counts[: n + 1]) for n in range(len(bounds))]
            assert cumulative == [s.value for s in bounds]
            assert [*point.explicit_bounds, float("inf")] == [float(s.labels["le"]) for s in bounds]
            assert point.sum == next(s.value for s in family.samples if s.name.endswith("_sum"))
            assert point.count == cumulative[-1]
            compared += 1
            continue
        values = {
            tuple(sorted(attributes_in(point.attributes).items())): point.as_double
            for point in points_of(metric)
        }
        page = {tuple(sorted(s.labels.items())): float(s.value) for s in family.samples}
        assert values.keys() == page.keys()
        if row.family not in volatile:
            assert values == page, row.name
        compared += len(values)
    assert compared > 200


def test_nothing_is_sent_but_what_the_catalogue_names(
    exporter: Exporter, metrics: dict[str, Metric]
) -> None:
    named = {row.otel_name for row in rows()}
    assert metrics.keys() <= named
    assert not [name for name in metrics if "vllm" in name]
    shown = {row.otel_name for row in rows() if row.family in families(exporter)}
    assert shown <= metrics.keys()


def test_kinds(metrics: dict[str, Metric]) -> None:
    for row in rows():
        if row.otel_name not in metrics:
            continue
        metric = metrics[row.otel_name]
        kind = metric.WhichOneof("data")
        if row.kind == "counter":
            assert kind == "sum"
            assert metric.sum.is_monotonic
            assert metric.sum.aggregation_temporality == 2  # cumulative
        elif row.kind == "histogram":
            assert kind == "histogram"
            assert metric.histogram.aggregation_temporality == 2
        elif row.otel_name in ("hw.gpu.memory.limit", "hw.gpu.memory.usage", "hw.status"):
            assert kind == "sum"
            assert not metric.sum.is_monotonic
        else:
            assert kind == "gauge"


def test_generative_ai_has_the_conventions_bounds_units_and_attributes() -> None:
    exporter, subscription = make_exporter()
    play(subscription)
    put(subscription, len(STEPS), NOW_NS, ended(97, reason="abort"), finished(97, reason="abort"))
    metrics = metrics_in(sent(Feed(exporter, BEGAN_NS)))
    common = {
        "gen_ai.provider.name": "kvscope",
        "gen_ai.request.model": "demo",
        "engine": "0",
    }
    for name, bounds in (
        ("request.duration", buckets.GEN_AI_REQUEST_SECONDS),
        ("time_to_first_token", buckets.GEN_AI_FIRST_TOKEN_SECONDS),
        ("time_per_output_token", buckets.GEN_AI_OUTPUT_TOKEN_SECONDS),
    ):
        metric = metrics[f"gen_ai.server.{name}"]
        assert metric.unit == "s"
        for point in metric.histogram.data_points:
            assert tuple(point.explicit_bounds) == bounds
            attributes = attributes_in(point.attributes)
            error = attributes.pop("error.type", None)
            operation = attributes.pop("gen_ai.operation.name")
            assert operation in ("chat", "text_completion")
            assert attributes == common
            assert error is None or name == "request.duration"
    ends: Counter[str | None] = Counter()
    for point in metrics["gen_ai.server.request.duration"].histogram.data_points:
        ends[attributes_in(point.attributes).get("error.type")] += point.count

    def finished_by(*reasons: str) -> float:
        name = "kvscope_requests_finished_total"
        return sum(value(exporter, name, reason=reason) or 0 for reason in reasons)

    assert ends == {
        None: finished_by("stop", "length"),
        "abort": finished_by("abort"),
        "error": finished_by("error"),
    }
    assert ends[None]
    assert ends["abort"]
    firsts = metrics["gen_ai.server.time_to_first_token"].histogram.data_points
    (ours,) = metrics["kvscope.time_to_first_token"].histogram.data_points
    assert sum(first.count for first in firsts) == ours.count
    assert sum(first.sum for first in firsts) == pytest.approx(ours.sum)
    assert sum(first.bucket_counts[4] for first in firsts) == 1  # 30 ms: above 20, at most 40


def test_metrics_and_spans_name_the_same_operation() -> None:
    exporter, subscription = make_exporter()
    events: list[EngineEvent] = []
    for request, operation in enumerate(("chat", "chat", "text_completion", "")):
        events += [
            RequestArrived(request, 40, 64, operation=operation),
            SequenceAdded(request, request, 40, 64),
            FirstToken(request, 20_000_000),
            ended(request),
            finished(request),
        ]
    put(subscription, 0, NOW_NS, HELLO, *events)
    metrics = metrics_in(sent(Feed(exporter, BEGAN_NS)))
    for name in ("request.duration", "time_to_first_token", "time_per_output_token"):
        counts: Counter[str] = Counter()
        for point in metrics[f"gen_ai.server.{name}"].histogram.data_points:
            counts[attributes_in(point.attributes)["gen_ai.operation.name"]] += point.count
        assert counts == {"chat": 2, "text_completion": 2}, name


def test_hardware_has_the_conventions_attributes(metrics: dict[str, Metric]) -> None:
    device = {"hw.id": UUID, "hw.name": "NVIDIA H100", "hw.vendor": "NVIDIA"}

    def values(name: str) -> dict[tuple[tuple[str, str], ...], float]:
        found = {}
        for point in points_of(metrics[name]):
            attributes = attributes_in(point.attributes)
            assert attributes.pop("hw.driver_version")
            assert device.items() <= attributes.items()
            rest = tuple(sorted(item for item in attributes.items() if item[0] not in device))
            found[rest] = point.as_double
        return found

    assert values("hw.gpu.memory.limit") == {(): 80 * GIB}
    assert values("hw.gpu.memory.usage") == {(): 60 * GIB}
    assert metrics["hw.gpu.memory.usage"].unit == "By"
    (share,) = values("hw.gpu.memory.utilization").values()
    assert 0.7 < share < 0.8
    assert values("hw.gpu.utilization") == {(("hw.gpu.task", "general"),): 0.97}
    assert values("hw.gpu.io") == {
        (("network.io.direction", "transmit"),): 987,
        (("network.io.direction", "receive"),): 654,
    }
    assert values("hw.errors") == {
        (("error.type", "corrected"), ("hw.type", "gpu")): 3,
        (("error.type", "uncorrected"), ("hw.type", "gpu")): 1,
    }
    assert values("hw.status") == {
        (("hw.state", "ok"), ("hw.type", "gpu")): 1,
        (("hw.state", "failed"), ("hw.type", "gpu")): 0,
    }
    assert metrics["hw.status"].unit == "1"


def test_sums_have_a_start_that_moves_when_the_engine_begins_anew() -> None:
    exporter, subscription = make_exporter()
    play(subscription)
    server = Feed(exporter, BEGAN_NS)

    def starts(now_ns: int) -> dict[str, set[int]]:
        return {
            name: {point.start_time_unix_nano for point in points_of(metric)}
            for name, metric in metrics_in(sent(server, now_ns)).items()
        }

    first = starts(NOW_NS)
    assert first["kvscope.kv.block.evictions"] == {BEGAN_NS}
    assert first["kvscope.step.duration"] == {BEGAN_NS}
    assert first["hw.energy"] == {NOW_NS}  # counted since the driver was loaded: not known
    assert first["kvscope.kv.blocks"] == {0}  # a gauge has none
    assert starts(NOW_NS + 1)["hw.energy"] == {NOW_NS}
    exporter.targets[0].pipeline._renew()  # another session of the producer
    put(subscription, len(STEPS), NOW_NS, HELLO, *STEPS[0])
    anew = metrics_in(sent(server, NOW_NS + 2))["kvscope.step.tokens"].sum.data_points
    assert {(point.as_double, point.start_time_unix_nano) for point in anew} == {
        (9, NOW_NS + 1),  # fewer than before
        (0, NOW_NS + 1),
    }


def test_exemplars_carry_their_trace(metrics: dict[str, Metric]) -> None:
    (point,) = metrics["kvscope.time_to_first_token"].histogram.data_points
    (exemplar,) = point.exemplars
    assert exemplar.trace_id.hex() == TRACE
    assert exemplar.as_double == 0.03


def test_the_resource_says_who_it_is_and_the_environment_wins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    def resource(*, is_only: bool) -> dict[str, object]:
        library._of_environment.cache_clear()
        return dict(resource_of("red", {"team": "search"}, is_only=is_only).attributes)

    plain = resource(is_only=True)
    assert plain["service.name"] == "kvscope"
    assert plain["service.instance.id"] == "red"
    assert plain["service.version"]
    assert plain["team"] == "search"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "llm")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=pod-1,zone=a%2Cb")
    given = resource(is_only=True)
    assert given["service.name"] == "llm"
    assert given["service.instance.id"] == "pod-1"
    assert given["zone"] == "a,b"
    assert resource(is_only=False)["service.instance.id"] == "pod-1/red"
    monkeypatch.undo()
    library._of_environment.cache_clear()
