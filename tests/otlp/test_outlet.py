"""The export beside the page: what an endpoint may do to us, and what that costs."""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)

from kvscope_events.bus import EventBus
from kvscope_exporter.clock import Clock
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.otlp.outlet import FLUSH_SECONDS, Outlet, Served
from kvscope_exporter.otlp.settings import OtlpConfig, OtlpSettingError
from kvscope_exporter.targets.exporter import Exporter, in_process
from tests.exporter.page import make_exporter, value
from tests.exporter.scenario import play
from tests.exporter.stream import hello
from tests.otlp.receiver import Receiver, accept, attributes_in, metrics_in
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(60)
INTERVAL_MS = 100


def played() -> Exporter:
    exporter, subscription = make_exporter()
    play(subscription)
    return exporter


def config(url: str) -> OtlpConfig:
    return OtlpConfig(url=f"{url}/v1/metrics")


TIMEOUT = "OTEL_EXPORTER_OTLP_TIMEOUT"
INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds of one export, and milliseconds between two, which the library reads itself."""
    monkeypatch.setenv(TIMEOUT, "5")
    monkeypatch.setenv(INTERVAL, str(INTERVAL_MS))


@contextmanager
def exporting(exporter: Exporter, settings: OtlpConfig) -> Iterator[Outlet]:
    outlet = Outlet(settings, lambda: [Served(instance="one", exporter=exporter)], Clock())
    exporter.show(Machine(), [outlet])
    with outlet:
        yield outlet


def exports(exporter: Exporter, result: str) -> float:
    count = value(exporter, "kvscope_otlp_exports_total", result=result)
    assert count is not None
    return count


def test_exports_arrive_in_intervals_and_are_counted_on_the_page() -> None:
    exporter = played()
    with Receiver() as receiver, exporting(exporter, config(receiver.url)):
        wait_for(lambda: exports(exporter, "ok") >= 3, "three exports")
    assert set(receiver.paths) == {"/v1/metrics"}
    assert {h["content-type"] for h in receiver.headers} == {"application/x-protobuf"}
    metrics = metrics_in(receiver.requests[-1])
    blocks = metrics["kvscope.kv.blocks"].gauge.data_points
    assert sum(point.as_double for point in blocks) == value(exporter, "kvscope_kv_capacity_blocks")
    assert exports(exporter, "failed") == 0
    assert metrics["kvscope.otlp.exports"].sum.is_monotonic


def test_the_last_values_are_sent_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INTERVAL, "3600000")
    exporter, subscription = make_exporter()
    with Receiver() as receiver:
        with exporting(exporter, config(receiver.url)):
            play(subscription)
        (request,) = receiver.requests
    assert metrics_in(request)["kvscope.requests.finished"].sum.data_points
    assert exports(exporter, "ok") == 1


def respond(status: int, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, text in headers.items():
            handler.send_header(name.replace("_", "-"), text)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (respond(401), "HTTP 401"),
        (respond(503), "HTTP 503"),
        (respond(429, Retry_After="3600"), "HTTP 429"),
        (respond(307, Location="http://127.0.0.1:1/"), "HTTP 307"),
    ],
)
def test_an_endpoint_that_refuses_is_counted_and_said_once_a_minute(
    answer: Callable[[BaseHTTPRequestHandler], None],
    said: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(TIMEOUT, "0.7")  # less than the wait for a second attempt
    exporter = played()
    with caplog.at_level(logging.WARNING), Receiver(answer) as receiver:
        with exporting(exporter, config(receiver.url)):
            wait_for(lambda: exports(exporter, "failed") >= 3, "three failures")
        assert exports(exporter, "ok") == 0
        failures = [r.getMessage() for r in caplog.records if "failed:" in r.getMessage()]
        assert len(failures) == 1
        assert said in failures[0]
        assert receiver.url in failures[0]


def test_it_recovers_and_counts_nothing_twice() -> None:
    exporter = played()
    with Receiver(respond(400)) as receiver, exporting(exporter, config(receiver.url)):
        wait_for(lambda: exports(exporter, "failed") >= 2, "two failures")
        receiver.answer = accept
        wait_for(lambda: exports(exporter, "ok") >= 2, "two exports")


@pytest.mark.timed
def test_a_silent_endpoint_costs_exports_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TIMEOUT, "30")
    exporter = played()
    with Receiver() as receiver:
        receiver.answer = lambda handler: receiver.released.wait(30) and None
        with exporting(exporter, config(receiver.url)):
            wait_for(lambda: len(receiver.requests) == 1, "an export that is not answered")
            began = time.monotonic()
            assert b"kvscope_kv_blocks{" in exporter.render()[0]
            assert time.monotonic() - began < 1
            began = time.monotonic()
        assert time.monotonic() - began < FLUSH_SECONDS + 1, "the end waits for nobody"


@pytest.mark.timed
def test_an_endpoint_that_is_down_is_said_and_ends_promptly(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(TIMEOUT, "0.5")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        exporter = played()
        with exporting(exporter, config(url)):
            refused = "[Errno 111] Connection refused"
            wait_for(lambda: refused in caplog.text, "it is said")
            wait_for(lambda: exports(exporter, "failed") > 0, "it is counted")
            time.sleep(3 * INTERVAL_MS / 1e3)
            began = time.monotonic()
        assert time.monotonic() - began < FLUSH_SECONDS + 1
    assert exports(exporter, "ok") == 0


def test_an_endless_answer_is_not_read() -> None:
    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(1 << 40))
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b"x" * (1 << 16))
        except OSError:
            ended.set()

    ended = threading.Event()
    exporter = played()
    with Receiver(endless) as receiver, exporting(exporter, config(receiver.url)):
        wait_for(lambda: exports(exporter, "ok") >= 2, "the status says enough")
        wait_for(ended.is_set, "the connection is closed")


def test_a_partial_success_is_a_failure_with_what_the_receiver_says(
    caplog: pytest.LogCaptureFixture,
) -> None:
    response = ExportMetricsServiceResponse()
    response.partial_success.rejected_data_points = 3
    response.partial_success.error_message = "out of\norder"
    body = response.SerializeToString()

    def partial(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    exporter = played()
    with Receiver(partial) as receiver, exporting(exporter, config(receiver.url)):
        wait_for(lambda: exports(exporter, "failed") >= 2, "failures")
    assert "3 rejected: out of order" in caplog.text


def test_a_url_that_the_http_library_refuses_is_refused_at_the_start() -> None:
    with pytest.raises(OtlpSettingError, match="expected a URL"):
        Outlet(config("http://*.a"), lambda: [], Clock())


def test_a_header_that_cannot_be_sent_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret%0Ax")
    exporter = played()
    with Receiver() as receiver, exporting(exporter, config(receiver.url)):
        wait_for(lambda: exports(exporter, "failed") >= 1, "a failure")
    assert "OTEL_EXPORTER_OTLP_HEADERS" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("interval", ["0", "-5"])
def test_an_interval_that_cannot_be_is_refused_at_the_start(
    interval: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(INTERVAL, interval)
    with pytest.raises(OtlpSettingError, match=INTERVAL):
        Outlet(config("http://a"), lambda: [], Clock())


def test_several_servers_are_resources_of_their_own() -> None:
    one, _ = make_exporter()
    bus_two = EventBus()
    two = in_process(bus_two.subscribe())
    bus_two.emit(hello(model_name="other"))
    bus_two.flush()
    served = [Served(instance="one", exporter=one), Served(instance="two", exporter=two)]
    with Receiver() as receiver, Outlet(config(receiver.url), lambda: served, Clock()):
        wait_for(lambda: len(receiver.requests) >= 1, "an export")
    resources = receiver.requests[0].resource_metrics
    ids = [attributes_in(r.resource.attributes)["service.instance.id"] for r in resources]
    assert ids == ["one", "two"]


def test_a_server_that_cannot_be_collected_costs_no_other_server_its_export(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> Iterator[object]:
        raise RuntimeError("ours")

    one, two = played(), played()
    monkeypatch.setattr(one, "collect_for_otlp", broken)
    served = [Served(instance="one", exporter=one), Served(instance="two", exporter=two)]
    with Receiver() as receiver, Outlet(config(receiver.url), lambda: served, Clock()) as outlet:
        two.show(Machine(), [outlet])
        wait_for(lambda: exports(two, "ok") >= 2, "two exports")
        monkeypatch.undo()
        wait_for(lambda: len(receiver.requests[-1].resource_metrics) == 2, "it is back")
    (resource,) = receiver.requests[0].resource_metrics
    assert attributes_in(resource.resource.attributes)["service.instance.id"] == "two"
    assert exports(two, "failed") == 0
    left_out = value(two, "kvscope_otlp_servers_left_out_total")
    assert left_out is not None
    assert left_out >= 2
    (said,) = [r for r in caplog.records if "left out" in r.getMessage()]
    assert "one is left out: collecting failed: RuntimeError: ours" in said.getMessage()


def test_a_bug_in_collecting_is_counted_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    exporter = played()

    def broken() -> Iterator[object]:
        raise RuntimeError("ours")

    monkeypatch.setattr(exporter, "collect_for_otlp", broken)
    with Receiver() as receiver, exporting(exporter, config(receiver.url)):
        wait_for(lambda: exports(exporter, "failed") >= 2, "failures")
        monkeypatch.undo()
        wait_for(lambda: exports(exporter, "ok") >= 1, "an export")
    assert "collecting failed: RuntimeError: ours" in caplog.text
