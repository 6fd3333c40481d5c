"""A real Prometheus scrapes us and answers the queries of vLLM's own dashboard."""

import json
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvscope_events.bus import EventBus
from kvscope_exporter.targets.exporter import in_process
from kvscope_exporter.web.http_server import HttpServer
from kvscope_exporter.web.metrics import metrics_app
from tests.exporter.page import HELLO
from tests.exporter.scenario import STEPS, TRACE

pytestmark = [pytest.mark.prometheus, pytest.mark.slow]

CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: kvscope
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""
Query = Callable[[str, dict[str, str]], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def query(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Query]:
    """Ask the API of a Prometheus that has scraped an exporter whose engine is running."""
    folder: Path = tmp_path_factory.mktemp("prometheus")
    bus = EventBus()
    exporter = in_process(bus.subscribe())
    bus.emit(HELLO)
    bus.flush()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with HttpServer(metrics_app(exporter), "127.0.0.1", 0) as server:
        (folder / "prometheus.yml").write_text(CONFIG.format(port=server.port))
        command = [
            "prometheus",
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}",
            "--enable-feature=exemplar-storage",
        ]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)

        def ask(path: str, parameters: dict[str, str]) -> list[dict[str, Any]]:
            url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
            with urllib.request.urlopen(url, timeout=5) as response:
                data = json.load(response)["data"]
            return data if isinstance(data, list) else data["result"]

        def until(expression: str) -> None:
            deadline = time.monotonic() + 30
            while True:
                try:
                    if ask("query", {"query": expression}):
                        return
                except OSError:
                    pass
                assert time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.2)

        try:
            until("up == 1")
            for events in STEPS:  # between two scrapes, so that rates have something to see
                for event in events:
                    bus.emit(event)
                bus.flush()
            until("increase(vllm:request_success_total[1m]) > 0")
            yield ask
        finally:
            process.terminate()
            process.wait(10)


DASHBOARD = (
    "histogram_quantile(0.99, sum by(le) "
    '(rate(vllm:e2e_request_latency_seconds_bucket{model_name="demo"}[1m])))',
    "histogram_quantile(0.5, sum by(le) "
    '(rate(vllm:inter_token_latency_seconds_bucket{model_name="demo"}[1m])))',
    'rate(vllm:request_time_per_output_token_seconds_sum{model_name="demo"}[1m]) / '
    'rate(vllm:request_time_per_output_token_seconds_count{model_name="demo"}[1m])',
    'rate(vllm:prompt_tokens_total{model_name="demo"}[1m])',
    'rate(vllm:generation_tokens_total{model_name="demo"}[1m])',
    'vllm:num_requests_running{model_name="demo"}',
    'vllm:kv_cache_usage_perc{model_name="demo"}',
    'sum by(le) (increase(vllm:request_prompt_tokens_bucket{model_name="demo"}[1m]))',
    'sum by(finished_reason) (increase(vllm:request_success_total{model_name="demo"}[1m]))',
    'rate(vllm:request_max_num_generation_tokens_sum{model_name="demo"}[1m])',
)


@pytest.mark.parametrize("expression", DASHBOARD)
def test_vllms_dashboard_is_answered_with_numbers(query: Query, expression: str) -> None:
    result = query("query", {"query": expression})
    assert result
    assert any(series["value"][1] != "NaN" for series in result)


def test_our_states_sum_to_the_capacity(query: Query) -> None:
    assert query("query", {"query": "sum(kvscope_kv_blocks) == sum(kvscope_kv_capacity_blocks)"})


def test_exemplars_arrive_with_their_trace(query: Query) -> None:
    now = time.time()
    result = query(
        "query_exemplars",
        {
            "query": "kvscope_time_to_first_token_seconds_bucket",
            "start": str(now - 600),
            "end": str(now + 60),
        },
    )
    labels = [exemplar["labels"] for series in result for exemplar in series["exemplars"]]
    assert {"trace_id": TRACE} in labels
