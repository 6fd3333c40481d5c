"""The export of spans: what arrives, and what an endpoint that fails may cost."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from kvscope_events.bus import EventBus
from kvscope_events.events import EngineEvent, FirstToken, PoolCreated, RequestArrived
from kvscope_events.wire.publisher import WirePublisher
from kvscope_exporter.clock import Clock
from kvscope_exporter.configuration import ServerConfig
from kvscope_exporter.otlp.settings import OtlpConfig, OtlpSettingError
from kvscope_exporter.sidecar.sidecar import Sidecar
from kvscope_exporter.tracing.session import FLUSH_SECONDS, Origin, Tracing
from tests.exporter.page import make_exporter, value
from tests.exporter.stream import batch_of, finished, hello
from tests.otlp.receiver import Receiver, attributes_in, spans_in
from tests.support.waiting import started_since, wait_for

pytestmark = pytest.mark.timeout(60)
SECOND = 10**9
BOOT_NS = 1_800_000_000 * SECOND
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def config(url: str) -> OtlpConfig:
    return OtlpConfig(url=f"{url}/v1/traces")


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that the library reads itself."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "5")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")


def play(tracing: Tracing, *arrivals: RequestArrived, reason: str = "stop") -> None:
    """These requests come and end."""
    maker = tracing.listener("here:8000")
    maker.on_batch(batch_of(hello()))
    for event in arrivals:
        first = FirstToken(event.request, SECOND // 2)
        end = finished(event.request, reason=reason)
        now = 10 * SECOND
        maker.on_batch(batch_of(event, first, end, time_ns=now, wall_ns=BOOT_NS + now))


def counts(tracing: Tracing) -> dict[str, float]:
    (family,) = tracing.collect()
    return {sample.labels["result"]: sample.value for sample in family.samples}


def arrival(number: int, *, sampled: bool = True) -> RequestArrived:
    return RequestArrived(number, 40, 64, "alice", TRACE, PARENT, sampled, "chat")


def test_a_span_arrives_in_the_callers_trace_under_the_callers_span() -> None:
    origin = Origin(labels={"team": "search"})
    with Receiver() as receiver:
        with Tracing(config(receiver.url), Clock(), lambda _: origin) as tracing:
            play(tracing, arrival(1))
        (span,) = spans_in(receiver.traces)
        assert counts(tracing) == {"ok": 1, "failed": 0, "dropped": 0}
    assert span.trace_id.hex() == TRACE
    assert span.parent_span_id.hex() == PARENT
    assert span.span_id.hex() not in (PARENT, "0" * 16)
    assert span.name == "chat demo"
    assert span.kind == Span.SPAN_KIND_SERVER
    assert span.status.code == Status.STATUS_CODE_UNSET
    assert span.end_time_unix_nano - span.start_time_unix_nano == SECOND
    (event,) = span.events
    assert event.name == "kvscope.first_token"
    assert event.time_unix_nano - span.start_time_unix_nano == SECOND // 2
    assert attributes_in(span.attributes)["gen_ai.operation.name"] == "chat"
    resource = attributes_in(receiver.traces[0].resource_spans[0].resource.attributes)
    assert resource["service.instance.id"] == "here:8000"
    assert resource["team"] == "search"
    assert b"alice" not in receiver.traces[0].SerializeToString()


@pytest.mark.parametrize(
    ("sampler", "ids"),
    [
        ("parentbased_always_on", {1, 3}),
        ("always_on", {1, 2, 3}),
    ],
)
def test_the_callers_flag_decides_unless_the_sampler_says_otherwise(
    sampler: str, ids: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    calls = (arrival(1), arrival(2, sampled=False), RequestArrived(3, 1, 3))
    with Receiver() as receiver:
        with Tracing(config(receiver.url), Clock()) as tracing:
            for event in calls:
                play(tracing, event, reason="error" if event.request == 3 else "stop")
        spans = spans_in(receiver.traces)
    assert counts(tracing) == {"ok": len(ids), "failed": 0, "dropped": 0}
    assert sum(span.parent_span_id == b"" for span in spans) == (3 in ids), "one begins a trace"
    failed = [span for span in spans if span.status.code == Status.STATUS_CODE_ERROR]
    assert len(failed) == (3 in ids)


def test_a_trace_without_a_parent_begins_with_the_span() -> None:
    with Receiver() as receiver:
        with Tracing(config(receiver.url), Clock()) as tracing:
            play(tracing, RequestArrived(1, 1, 1, trace_id=TRACE))
        (span,) = spans_in(receiver.traces)
    assert (span.trace_id.hex(), span.parent_span_id) == (TRACE, b"")


@pytest.mark.timed
def test_a_silent_endpoint_costs_spans_only_and_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "30")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "8")
    with Receiver() as receiver:
        receiver.answer = lambda handler: receiver.released.wait(30) and None
        with Tracing(config(receiver.url), Clock()) as tracing:
            play(tracing, *(arrival(number) for number in range(20)))
            assert counts(tracing)["dropped"] == 12
            began = time.monotonic()
        assert time.monotonic() - began < FLUSH_SECONDS + 1, "the end waits for nobody"


def test_an_endpoint_that_is_down_is_counted_and_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.3")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with Tracing(config(url), Clock()) as tracing:
            play(tracing, arrival(1), arrival(2))
            wait_for(lambda: counts(tracing)["failed"] == 2, "they are given up")
            play(tracing, arrival(3))
            wait_for(lambda: counts(tracing)["failed"] == 3, "it is tried again")
    said = [r.getMessage() for r in caplog.records if "refused" in r.getMessage()]
    assert len(said) == 1


def test_requests_that_a_gap_forgets_are_counted() -> None:
    with Tracing(config("http://127.0.0.1:9"), Clock()) as tracing:
        maker = tracing.listener("here")
        maker.on_batch(batch_of(arrival(1), arrival(2), time_ns=1, wall_ns=BOOT_NS))
        maker.on_gap()
        assert counts(tracing) == {"ok": 0, "failed": 0, "dropped": 2}


def test_a_sidecar_makes_spans_of_each_server_and_forgets_those_of_one_that_died(
    tmp_path: Path,
) -> None:
    sockets = {name: f"ipc://{tmp_path}/{name}.sock" for name in ("red", "blue")}
    servers = [ServerConfig(name=name, events=(socket,)) for name, socket in sockets.items()]
    with (
        Receiver() as receiver,
        Tracing(config(receiver.url), Clock()) as tracing,
        ExitStack() as stack,
    ):
        sidecar = Sidecar(servers, compat=(), listener=tracing.listener)
        sidecar.start()
        stack.callback(sidecar.stop)
        for number, (name, endpoint) in enumerate(sockets.items(), 1):
            with publishing(endpoint) as bus:
                tell(bus, hello(model_name=name), PoolCreated(8, 16, 1), arrival(1))
                tell(bus, finished(1), arrival(2))  # the second does not end
                wait_for(partial(has_spans, receiver, number), "a span")
        with publishing(sockets["red"]) as bus:
            tell(bus, hello(model_name="red again", session="1" * 16), PoolCreated(8, 16, 1))
            tell(bus, finished(2), arrival(3), finished(3))
            wait_for(partial(has_spans, receiver, 3), "a span of the new one")
        assert counts(tracing)["dropped"] == 1
    assert models(receiver) == ["red", "blue", "red again"]
    instances = {
        attributes_in(resource.resource.attributes)["service.instance.id"]
        for request in receiver.traces
        for resource in request.resource_spans
    }
    assert instances == {"red", "blue"}


@contextmanager
def publishing(endpoint: str) -> Iterator[EventBus]:
    bus = EventBus()
    publisher = WirePublisher(bus, endpoint)
    publisher.start()
    try:
        yield bus
    finally:
        publisher.stop()


def tell(bus: EventBus, *events: EngineEvent) -> None:
    for event in events:
        bus.emit(event)
    bus.flush()


def has_spans(receiver: Receiver, number: int) -> bool:
    return len(spans_in(receiver.traces)) == number


def models(receiver: Receiver) -> list[str]:
    spans = spans_in(receiver.traces)
    return [attributes_in(span.attributes)["gen_ai.request.model"] for span in spans]


def test_a_url_that_the_http_library_refuses_is_refused_at_the_start() -> None:
    before = threading.enumerate()
    with pytest.raises(OtlpSettingError, match="expected a URL"):
        Tracing(config("http://*.a"), Clock())
    assert started_since(before) == []


def test_a_batch_over_the_queue_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "9999")
    with pytest.raises(OtlpSettingError, match="max_export_batch_size"):
        Tracing(config("http://127.0.0.1:9"), Clock())


@pytest.mark.parametrize("text", ["0", "many"])
def test_a_queue_that_cannot_be_is_refused_at_the_start(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", text)
    with pytest.raises(OtlpSettingError, match=r"^OTEL_BSP_MAX_QUEUE_SIZE '"):
        Tracing(config("http://127.0.0.1:9"), Clock())


def test_a_page_without_traces_has_no_series_of_them() -> None:
    exporter, _ = make_exporter()
    assert value(exporter, "kvscope_otlp_spans_total", result="ok") is None
    assert b"spans" not in exporter.render()[0]
