"""Prometheus scrapes the server under load; dashboards made for vLLM find their numbers."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kvscope.load import LoadSpec, Report, Scenario, run
from tests.support.prometheus import Prometheus, prometheus
from tests.support.server import Server, make_engine_config, serving
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.prometheus, pytest.mark.slow, pytest.mark.nightly]

VARIABLES = {"$model_name": "demo", "$__rate_interval": "10s", "$__interval": "10s"}

HISTOGRAMS = (
    "e2e_request_latency_seconds",
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "request_time_per_output_token_seconds",
    "request_queue_time_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
)
SUMS_ALONE = (
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_max_num_generation_tokens",
)
"""Histograms without buckets."""
EXPRESSIONS = (
    *(
        f"histogram_quantile(0.9, sum by (le) (rate(vllm:{name}_bucket"
        '{model_name="$model_name"}[$__rate_interval])))'
        for name in HISTOGRAMS
    ),
    *(
        f"sum(rate(vllm:{name}_sum[$__rate_interval])) / "
        f"sum(rate(vllm:{name}_count[$__rate_interval]))"
        for name in HISTOGRAMS + SUMS_ALONE
    ),
    "rate(vllm:prompt_tokens_total[$__rate_interval]) > 0",
    "rate(vllm:generation_tokens_total[$__rate_interval]) > 0",
    "rate(vllm:prefix_cache_hits_total[1m]) / rate(vllm:prefix_cache_queries_total[1m]) > 0",
    "vllm:num_requests_running > 0",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc > 0",
    "rate(vllm:num_preemptions_total[$__rate_interval])",
    "sum by (finished_reason) (increase(vllm:request_success_total[$__rate_interval])) > 0",
    "vllm:cache_config_info",
    # our own
    "sum(kvscope_kv_blocks) == sum(kvscope_kv_capacity_blocks)",
    "kvscope_kv_ledger_imbalance_blocks == 0",
    "rate(kvscope_step_duration_seconds_count[$__rate_interval]) > 0",
    "histogram_quantile(0.9, rate(kvscope_time_to_first_token_seconds_bucket[$__rate_interval]))",
)


_MORE_SERIES = {"vllm-legacy": 30, "vllm-residency": 3 * 24}


@contextmanager
def load(server: Server) -> Iterator[list[Report]]:
    """Conversations until the block ends; then their report is in the list."""
    spec = LoadSpec(
        url=server.url, scenario=Scenario.CHAT, concurrency=8, max_tokens=24, num_sessions=8
    )
    stop = threading.Event()
    reports: list[Report] = []
    running = run(spec, stop=stop)
    thread = threading.Thread(target=lambda: reports.append(asyncio.run(running)))
    thread.start()
    try:
        wait_for(lambda: server.metric("vllm:request_success_total") > 8, "the load runs")
        yield reports
    finally:
        stop.set()
        thread.join(30)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus with ten seconds of a server that is under load all the time."""
    with serving(make_engine_config()) as server, load(server) as reports:
        target = server.url.removeprefix("http://")
        with prometheus(target, tmp_path_factory.mktemp("prometheus")) as running:
            running.wait_for("count_over_time(up[20s]) >= 6")
            running.wait_for('sum(increase(vllm:request_success_total{model_name="demo"}[10s]))')
            yield running
    assert not reports[0].failed


def filled_in(expression: str) -> str:
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    return expression


def test_the_target_is_up(scraped: Prometheus) -> None:
    wait_for(lambda: scraped.ask("up") == [1], "the target is up")
    # A busy machine loses a scrape of a second here and there.
    (share,) = scraped.ask("avg_over_time(up[1m])")
    assert share > 0.5
    (series,) = scraped.ask("scrape_samples_scraped")
    # With all sets of names; tests/exporter counts the page as it is by default.
    assert series < 600 + sum(_MORE_SERIES.values())


def answered(scraped: Prometheus, expression: str) -> None:
    wait_for(lambda: scraped.answers(expression), expression)


def test_queries_of_the_kind_dashboards_ask(scraped: Prometheus, subtests: pytest.Subtests) -> None:
    for expression in EXPRESSIONS:
        with subtests.test(expression):
            answered(scraped, filled_in(expression))
