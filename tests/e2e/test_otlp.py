"""`--otlp-endpoint` as an operator uses it: what arrives, what is refused, how it ends."""

import signal
import time

import httpx
import pytest

from tests.otlp.receiver import Receiver, attributes_in, metrics_in, spans_in
from tests.support.process import forked_kvscope
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SERVE = ("engine", "serve", "--port", "0", "--no-gpu", "--max-model-len", "256")
SERVE += ("--num-gpu-blocks-override", "64", "--served-model-name", "red")
SIDECAR = ("sidecar", "--port", "0", "--no-gpu", "--events", "blue=tcp://127.0.0.1:9")


def test_an_engine_sends_what_its_page_says_and_the_last_values_at_the_end() -> None:
    interval = {"OTEL_METRIC_EXPORT_INTERVAL": "3600000"}  # only the end exports
    with (
        Receiver() as receiver,
        forked_kvscope(*SERVE, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url, **interval) as server,
    ):
        url = server.find(r"serving \S+ at (http://\S+?)/v1")
        body = {"prompt": "abc", "max_tokens": 8, "ignore_eos": True}
        assert httpx.post(f"{url}/v1/completions", json=body, timeout=60).status_code == 200

        def compact() -> str:
            return httpx.get(f"{url}/metrics/compact", timeout=60).text

        wait_for(lambda: "\nvllm:num_requests_running 0\n" in compact(), "the step's end")
        assert 'block_size="16",num_gpu_blocks="64"' in compact()
        page = httpx.get(f"{url}/metrics").text
        assert 'kvscope_otlp_exports_total{result="ok"} 0' in page
        assert 'kvscope_otlp_spans_total{result="dropped"} 0' in page
        server.send(signal.SIGTERM)
        assert server.wait() == 0
        (request,) = receiver.requests
        (span,) = spans_in(receiver.traces)
    assert span.name == "text_completion red"
    (resource,) = request.resource_metrics
    attributes = attributes_in(resource.resource.attributes)
    assert attributes["service.name"] == "kvscope"
    assert attributes["service.instance.id"].endswith(f":{url.rpartition(':')[2]}")
    metrics = metrics_in(request)
    durations = metrics["gen_ai.server.request.duration"].histogram.data_points
    assert sum(point.count for point in durations) == 1
    assert attributes_in(durations[0].attributes)["gen_ai.request.model"] == "red"


@pytest.mark.timed
def test_a_sidecar_ends_promptly_while_the_endpoint_says_nothing() -> None:
    with Receiver() as receiver:
        receiver.answer = lambda _handler: receiver.released.wait(60) and None
        arguments = (*SIDECAR, "--otlp-endpoint", receiver.url)
        with forked_kvscope(*arguments, OTEL_METRIC_EXPORT_INTERVAL="100") as sidecar:
            wait_for(lambda: bool(receiver.requests), "an export")
            url = sidecar.find(r"targets: (http://\S+)/targets")
            assert "kvscope_otlp_exports_total" in httpx.get(f"{url}/metrics").text
            began = time.monotonic()
            sidecar.send(signal.SIGTERM)
            assert sidecar.wait() == 0
            assert time.monotonic() - began < 6


def test_several_servers_of_a_sidecar_are_instances_of_their_own() -> None:
    more = ("--events", "green=tcp://127.0.0.1:7")
    with (
        Receiver() as receiver,
        forked_kvscope(*SIDECAR, *more, "--otlp-endpoint", receiver.url) as sidecar,
    ):
        port = sidecar.find(r"targets: http://\S+:(\d+)/targets")
        sidecar.send(signal.SIGTERM)
        assert sidecar.wait() == 0
        ids = [
            attributes_in(resource.resource.attributes)["service.instance.id"]
            for resource in receiver.requests[-1].resource_metrics
        ]
    assert ids[:2] == ["blue", "green"]
    assert ids[2].endswith(f":{port}")


@pytest.mark.parametrize("command", [SERVE, SIDECAR, ("demo", "--port", "0")], ids=lambda c: c[0])
@pytest.mark.parametrize(
    ("option", "environment", "said"),
    [
        (
            ("--otlp-endpoint", "collector:4318"),
            {},
            "--otlp-endpoint 'collector:4318': expected http://HOST:4318, or https",
        ),
        (("--otlp-endpoint", "http://*.a"), {}, "expected a URL"),
        (("--otlp-traces-endpoint", "a:1"), {}, "--otlp-traces-endpoint 'a:1': expected http://"),
        (("--otlp-traces-endpoint", "http://*.a"), {}, "expected a URL"),
        (
            ("--otlp-endpoint", "http://a:4317"),
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL 'grpc': kvscope sends http/protobuf only",
        ),
    ],
)
def test_a_setting_that_cannot_be_used_is_one_line_and_exit_code_2(
    command: tuple[str, ...],
    option: tuple[str, ...],
    environment: dict[str, str],
    said: str,
) -> None:
    with forked_kvscope(*command, *option, **environment) as process:
        assert process.wait(60) == 2
    lines = [line for line in process.lines if "kvscope: " in line]
    assert len(lines) == 1
    assert said in lines[0]
    assert "Traceback" not in process.text


def test_a_server_without_a_page_has_nothing_to_send() -> None:
    options = ("--disable-log-stats", "--otlp-endpoint", "http://127.0.0.1:4318")
    with forked_kvscope(*SERVE, *options) as process:
        assert process.wait(60) == 2
    assert "--otlp-endpoint has nothing to send with --disable-log-stats: drop one" in process.text
