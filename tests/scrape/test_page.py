"""One page of a server from its events and its own page: no family twice, none of them mixed."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from kvscope_events.bus import Subscription
from kvscope_events.events import ObserverStopped
from kvscope_exporter.scrape import PageReader
from kvscope_exporter.scrape.tables import TABLES
from kvscope_exporter.sources.pipeline import InProcessSource
from kvscope_exporter.targets.exporter import Exporter
from kvscope_exporter.targets.target import Target
from tests.exporter.page import FIXED_CLOCK, put
from tests.exporter.stream import hello
from tests.scrape.answers import answering, page
from tests.scrape.cases.vllm import CURRENT_PAGE, CURRENT_READ

OPENMETRICS = "application/openmetrics-text;version=1.0.0"
ANSWER = page(CURRENT_PAGE.encode())


@contextmanager
def exported(subscription: Subscription | None = None) -> Iterator[Exporter]:
    targets = []
    if subscription is not None:
        targets = [Target(InProcessSource(subscription), compat=(), clock=FIXED_CLOCK)]
    with answering(ANSWER) as url:
        reader = PageReader(url, "vllm", clock=FIXED_CLOCK)
        exporter = Exporter(targets, readers=[reader], clock=FIXED_CLOCK, process=False)
        yield exporter
        exporter.stop()


def families(exporter: Exporter) -> dict[str, Family]:
    text = exporter.render(OPENMETRICS)[0].decode()
    return {f.name: f for f in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]


def test_a_page_alone_is_a_whole_page_and_strict_openmetrics() -> None:
    with exported() as exporter:
        found = families(exporter)
    assert found["kvscope_kv_blocks"].samples[0].labels == {
        "model_name": "m",
        "engine": "0",
        "state": "active",
    }
    first = found["kvscope_time_to_first_token_seconds"]
    assert first.type == "histogram"
    buckets = {s.labels["le"]: s.value for s in first.samples if s.name.endswith("_bucket")}
    assert buckets == {"0.5": 1, "1.0": 3, "+Inf": 4}, "the server's own bounds"
    (up,) = found["kvscope_source_up"].samples
    assert up.value == 1
    assert up.labels["source"] == "page"
    assert "engine" not in up.labels
    assert {s.value for s in found["kvscope_page_errors"].samples} == {0}
    assert {s.value for s in found["kvscope_collect_errors"].samples} == {0}
    assert not any(name.startswith("vllm:") for name in found), "Prometheus reads those itself"


def test_a_dead_server_leaves_what_is_said_of_its_page() -> None:
    reader = PageReader("http://127.0.0.1:9/metrics", "vllm")
    exporter = Exporter([], readers=[reader], process=False)
    found = families(exporter)
    assert found["kvscope_source_up"].samples[0].value == 0
    assert sum(s.value for s in found["kvscope_page_errors"].samples) == 1
    assert "kvscope_source_last_message_age_seconds" not in found
    assert not any(name.startswith("kvscope_kv") for name in found)
    exporter.stop()


def test_what_events_tell_is_not_read_from_the_page_even_while_it_is_unknown() -> None:
    subscription = Subscription(64)
    tells = ["RequestPreempted", "PoolCreated"]
    put(subscription, -1, 0, hello(model_name="m", engine="0", tells=tells))
    with exported(subscription) as exporter:
        found = families(exporter)
    preempted = found["kvscope_preemptions"].samples
    assert {s.value for s in preempted} == {0}, "from events"
    assert all(s.labels["cause"] for s in preempted)
    assert "kvscope_kv_capacity_blocks" not in found, "its events tell it, and have not yet"
    (tokens,) = found["kvscope_generated_tokens"].samples
    assert tokens.value == CURRENT_READ["kvscope_generated_tokens_total"], "only the page tells it"


def test_the_page_speaks_for_an_observer_that_has_stopped() -> None:
    subscription = Subscription(64)
    put(subscription, -1, 0, hello(model_name="m", engine="0", tells=["RequestPreempted"]))
    put(subscription, 0, 0, ObserverStopped(reason="test"))
    with exported(subscription) as exporter:
        (preempted,) = families(exporter)["kvscope_preemptions"].samples
    assert "cause" not in preempted.labels
    assert preempted.value == CURRENT_READ["kvscope_preemptions_total:recompute"]


def test_another_engine_s_events_take_nothing_from_the_page() -> None:
    subscription = Subscription(64)
    put(subscription, -1, 0, hello(model_name="m", engine="1", tells=["RequestPreempted"]))
    with exported(subscription) as exporter:
        engines = {s.labels["engine"] for s in families(exporter)["kvscope_preemptions"].samples}
    assert engines == {"0", "1"}


def test_of_two_pages_with_the_same_engine_the_first_is_shown() -> None:
    with answering(ANSWER) as first, answering(ANSWER) as second:
        readers = [PageReader(url, "vllm") for url in (first, second)]
        exporter = Exporter([], readers=readers, process=False)
        text = exporter.render()[0].decode()
        exporter.stop()
    series = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))


def test_pages_of_one_server_are_read_at_the_same_time() -> None:
    both_asked = threading.Barrier(2)

    def answer(connection: socket.socket) -> None:
        both_asked.wait(20)
        connection.sendall(ANSWER)

    with answering(answer) as first, answering(answer) as second:
        readers = [PageReader(url, "vllm", timeout=20) for url in (first, second)]
        exporter = Exporter([], readers=readers, process=False)
        ups = families(exporter)["kvscope_source_up"].samples
        exporter.stop()
    assert [s.value for s in ups] == [1, 1]


@pytest.mark.parametrize("kind", TABLES)
def test_every_kind_has_a_reader(kind: str) -> None:
    PageReader("http://127.0.0.1:9/metrics", kind).close()  # type: ignore[arg-type]
