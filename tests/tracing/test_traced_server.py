"""From a call with a `traceparent` to the receiver: the real server, engine and protobuf."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from kvscope_engine.config import CacheConfig
from kvscope_engine.server.app import ApiConfig
from kvscope_exporter.clock import Clock
from kvscope_exporter.otlp.settings import OtlpConfig
from kvscope_exporter.tracing.session import Tracing
from tests.otlp.receiver import Receiver, attributes_in, spans_in
from tests.support.server import Server, greedy, make_engine_config, serving

pytestmark = pytest.mark.timeout(120)
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
OFF = """
import sys, threading
from kvscope.serving.telemetry import telemetry
from kvscope.options.gpu_devices import GpuOptions
from kvscope.options.telemetry import TelemetryConfig
before = threading.active_count()
with telemetry(TelemetryConfig(gpu=GpuOptions(gpu=False)), 8000) as observed:
    assert not observed.makes_spans
    names = sorted(t.name for t in threading.enumerate())
    assert not any("Otel" in name or "trace" in name for name in names), names
# Others of our libraries import its API, which does nothing by itself.
parts = ("opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry.proto")
loaded = [name for name in sys.modules if name.startswith(parts)]
assert not loaded, loaded
"""


@contextmanager
def traced(spans: list[Span], **changes: object) -> Iterator[Server]:
    """A server whose spans are in the list once it has ended."""
    with Receiver() as receiver:
        with Tracing(OtlpConfig(url=f"{receiver.url}/v1/traces"), Clock()) as tracing:
            api = ApiConfig(begins_traces=True)
            config = make_engine_config(**changes)
            with serving(config, api, [tracing.listener("here:8000")]) as server:
                yield server
        spans += spans_in(receiver.traces)


def test_a_call_becomes_a_span_under_the_callers() -> None:
    spans: list[Span] = []
    with traced(spans) as server:
        for flags in ("01", "00"):
            header = {"traceparent": f"00-{TRACE}-{PARENT}-{flags}"}
            answer = server.post("/v1/completions", greedy([65] * 40), headers=header)
            assert answer.status_code == 200
        chat = {"messages": [{"role": "user", "content": "secret"}], "user": "alice"}
        assert server.post("/v1/chat/completions", chat | {"max_tokens": 4}).status_code == 200
        answer = server.post("/v1/completions", greedy([65] * 40))
    assert len(spans) == 3, "what the caller does not record is not sent"
    first, second, third = spans
    assert (first.trace_id.hex(), first.parent_span_id.hex()) == (TRACE, PARENT)
    assert first.name == "text_completion demo"
    assert [event.name for event in first.events] == ["kvscope.scheduled", "kvscope.first_token"]
    assert second.name == "chat demo"
    assert second.parent_span_id == b""
    for span in spans:
        times = [event.time_unix_nano for event in span.events]
        assert [span.start_time_unix_nano, *times, span.end_time_unix_nano] == sorted(
            [span.start_time_unix_nano, *times, span.end_time_unix_nano]
        )
        text = span.SerializeToString()
        assert b"secret" not in text
        assert b"alice" not in text
    values = {pair.key: pair.value for pair in third.attributes}
    used = answer.json()["usage"]
    assert values["gen_ai.usage.input_tokens"].int_value == used["prompt_tokens"] == 40
    assert values["gen_ai.usage.output_tokens"].int_value == used["completion_tokens"] == 16
    cached = used["prompt_tokens_details"]["cached_tokens"]
    assert values["gen_ai.usage.cache_read.input_tokens"].int_value == cached > 0
    (reason,) = values["gen_ai.response.finish_reasons"].array_value.values
    assert reason.string_value == "length"
    assert "kvscope.prefix_hit" in [event.name for event in third.events]
    assert attributes_in(third.attributes)["gen_ai.provider.name"] == "kvscope"


def test_exemplars_name_the_trace_of_a_call_that_began_it() -> None:
    spans: list[Span] = []
    with traced(spans) as server:
        server.complete([65] * 20)
        page, _ = server.exporter.render("application/openmetrics-text; version=1.0.0")
    (span,) = spans
    assert f'trace_id="{span.trace_id.hex()}"' in page.decode()


def test_a_preempted_call_tells_when_it_lost_its_blocks_and_when_it_went_on() -> None:
    spans: list[Span] = []
    small = {"cache": CacheConfig(num_gpu_blocks_override=17), "max_model_len": 256}
    with traced(spans, **small) as server, ThreadPoolExecutor(4) as pool:
        bodies = [greedy([65 + n] * 32, max_tokens=96) for n in range(4)]
        answers = pool.map(lambda body: server.post("/v1/completions", body, timeout=60), bodies)
        assert all(answer.status_code == 200 for answer in answers)
        preemptions = server.metric("kvscope_preemptions_total")
    assert preemptions > 0, "the pool is too large for this test"
    lost = [event for span in spans for event in span.events if event.name == "kvscope.preempted"]
    back = [event for span in spans for event in span.events if event.name == "kvscope.resumed"]
    assert len(lost) == len(back) == preemptions
    assert attributes_in(lost[0].attributes)["kvscope.preemption.cause"] == "out_of_blocks"
    for span in spans:
        names = [e.name for e in span.events if e.name in ("kvscope.preempted", "kvscope.resumed")]
        assert names == ["kvscope.preempted", "kvscope.resumed"] * (len(names) // 2)


def test_off_means_no_thread_and_no_library() -> None:
    done = subprocess.run([sys.executable, "-c", OFF], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
