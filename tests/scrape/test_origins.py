"""An observed engine beside its server's own page: no count changes its source, and jumps."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from kvscope_events.bus import Subscription
from kvscope_events.events import EngineEvent, Hello, ObserverStopped
from kvscope_events.producers import VLLM_EVENTS
from kvscope_exporter.catalogue import CATALOGUE
from kvscope_exporter.clock import Clock
from kvscope_exporter.collect.origins import COUNTED, PATIENCE_NS
from kvscope_exporter.scrape import PageReader
from kvscope_exporter.sources.pipeline import InProcessSource
from kvscope_exporter.targets.exporter import Exporter
from kvscope_exporter.targets.target import Target
from tests.exporter.scenario import STEPS
from tests.exporter.stream import batch_of, hello
from tests.scrape.answers import answering, page
from tests.scrape.cases.vllm import CURRENT_PAGE
from tests.support import pages

SECOND = 1_000_000_000
BEFORE = 100_000
"""The server's counts of everything before it was watched."""
TOKENS = "kvscope_prefix_cache_queried_tokens_total"
"""With the only series that vLLM's page has."""
GAPS = "kvscope_inter_token_latency_seconds_count"
FIRST_TOKENS = "kvscope_time_to_first_token_seconds_count"
ACTIVE = "kvscope_kv_active_ratio"
OFF = ObserverStopped("by order")
ON = hello(server="vllm", model_name="m", tells=sorted(VLLM_EVENTS))
DECLINED = hello(server="vllm", model_name="m", tells=["Hello", "ObserverStopped"])


def sample(text: str, name: str, **labels: str) -> float | None:
    """A sample, of the phase that vLLM's page has as well."""
    if name == TOKENS:
        labels = {"phase": "first"}
    return pages.sample(text, name, **labels)


def number(text: str, name: str) -> float:
    found = sample(text, name)
    assert found is not None, name
    return found


class Source(InProcessSource):
    """One whose producer can end, and be another."""

    session = "first"


@dataclass
class Server:
    """A server that counts one of everything between two pages, and its sidecar."""

    subscription: Subscription = field(default_factory=lambda: Subscription(4096))
    source: Source = field(init=False)
    target: Target = field(init=False)
    exporter: Exporter = field(init=False)
    counted: int = BEFORE
    started: int = 1_700_000_000
    is_up: bool = True
    now_ns: int = SECOND
    seq: int = -1
    before: dict[str, float] = field(default_factory=dict)
    labels: dict[str, set[frozenset[str]]] = field(default_factory=dict)

    def put(self, *events: EngineEvent) -> None:
        self.subscription.put(batch_of(*events, seq=self.seq, time_ns=self.now_ns))
        self.seq += 1

    def work(self) -> None:
        for events in STEPS:
            self.put(*(event for event in events if not isinstance(event, Hello)))

    def restart(self, *greeting: EngineEvent) -> None:
        """The server, with its front end."""
        self.source.session += "'"
        self.put(*greeting)
        self.counted, self.started = 0, self.started + 1000
        self.before.clear()

    def page(self) -> str:
        """The next page; its counts have not jumped since the last one that had them."""
        self.now_ns += 2 * SECOND
        self.counted += 1
        text = self.exporter.render()[0].decode()
        for name, labels, value in counts_of(text):
            series = f"{name}{sorted(labels.items())}"
            grown = value - self.before.get(series, value)
            assert 0 <= grown < BEFORE / 2, f"{series} grew by {grown}"
            self.before[series] = value
            kinds = self.labels.setdefault(name, set())
            kinds.add(frozenset(labels))
            assert len(kinds) == 1, f"{name} changed its labels"
        return text

    def answer(self, connection: socket.socket) -> None:
        if self.is_up:
            text = f"{CURRENT_PAGE}process_start_time_seconds {self.started}\n"
            grown = re.sub(r"(?m)^(vllm:.+(?:total|bucket|count|sum){.*}) (.+)$", self._later, text)
            connection.sendall(page(grown.encode()))

    def _later(self, line: re.Match[str]) -> str:
        base = float(line[2]) if self.counted >= BEFORE else 0
        return f"{line[1]} {base + self.counted}"


def counts_of(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Samples of engines, not of the sidecar itself."""
    for family in text_string_to_metric_families(text):
        if family.type in ("counter", "histogram", "summary"):
            for one in family.samples:
                if "model_name" in one.labels and "source" not in one.labels:
                    yield one.name, one.labels, one.value


@contextmanager
def watched(*greeting: EngineEvent, **state: Any) -> Iterator[Server]:
    server = Server(**state)
    clock = Clock(monotonic_ns=lambda: server.now_ns)
    server.source = Source(server.subscription)
    server.target = Target(server.source, compat=(), clock=clock)
    with answering(server.answer) as url:
        reader = PageReader(url, "vllm", clock=clock, is_beside_events=True)
        server.exporter = Exporter([server.target], readers=[reader], clock=clock, process=False)
        if greeting:
            server.put(*greeting)
        yield server
        server.exporter.stop()


def test_an_observer_that_is_off_leaves_gaps_in_counts_and_goes_on_with_its_own() -> None:
    with watched(ON) as server:
        server.work()
        first = server.page()
        server.put(OFF)
        off = [server.page() for _ in range(30)]
        server.put(ON)
        server.work()
        last = server.page()
    for name in (TOKENS, GAPS):
        assert sample(off[-1], name) is None, name
        assert number(last, name) > number(first, name) > 0, name
    assert sample(off[-1], "kvscope_preemptions_total", mode="recompute") is None
    assert number(off[-1], FIRST_TOKENS) == number(first, FIRST_TOKENS) + 30, "the front end's"
    assert sample(off[-1], ACTIVE) == 0.9608938547486033, "the page has what is so now"
    # All of them, not only those that were thought of.
    shown = {name for name, *_ in counts_of(off[-1])} - {name for name, *_ in counts_of(last)}
    assert not shown


def test_an_observer_that_stops_by_itself_leaves_no_other_count_in_its_place() -> None:
    with watched(ON) as server:
        server.work()
        before = {name for name, *_ in counts_of(server.page())}
        server.put(ObserverStopped("AttributeError: a bug"))
        after = [server.page() for _ in range(30)]
    assert sample(after[-1], TOKENS) is None
    assert {name for name, *_ in counts_of(after[-1])} < before


def test_counts_that_began_with_the_page_stay_the_pages_when_an_observer_comes_on() -> None:
    with watched(ON, OFF) as server:  # a sidecar that starts while it is off
        first = server.page()
        server.put(ON)
        server.work()
        last = server.page()
        assert number(last, TOKENS) == number(first, TOKENS) + 1
        assert sample(last, "kvscope_step_tokens_total", phase="decode"), "no page has it"
        assert sample(last, ACTIVE) != 0.9608938547486033, "the pool's state is the observer's"
        server.restart(ON)
        server.labels.clear()
        server.work()
        again = server.page()
        assert sample(again, "kvscope_preemptions_total", cause="out_of_blocks") is not None


def test_a_sidecar_that_reads_the_page_first_waits_for_the_events() -> None:
    with watched() as server:
        alone = server.page()
        assert sample(alone, TOKENS) is None
        assert sample(alone, "kvscope_kv_capacity_blocks") == 180
        server.put(ON)
        server.work()
        assert 0 < number(server.page(), TOKENS) < BEFORE


def test_a_sidecar_that_never_hears_an_observer_takes_the_page() -> None:
    with watched() as server:
        server.page()
        server.now_ns += PATIENCE_NS
        first = server.page()
        server.put(ON)  # late
        server.work()
        last = server.page()
    assert number(last, TOKENS) == number(first, TOKENS) + 1 > BEFORE


def test_a_page_that_fails_at_first_has_no_stand_in_of_the_events() -> None:
    with watched(ON, is_up=False) as server:
        server.work()
        assert sample(server.page(), FIRST_TOKENS) is None
        server.is_up = True
        assert number(server.page(), FIRST_TOKENS) > BEFORE


def test_a_server_that_was_started_again_without_an_observer_is_counted_by_its_page() -> None:
    with watched(ON) as server:
        server.work()
        server.page()
        server.is_up = False
        server.page()
        server.restart(DECLINED, ObserverStopped("another vLLM"))
        server.labels.clear()  # it is another server
        server.is_up = True
        assert sample(server.page(), TOKENS) == server.counted


def test_a_front_end_alone_that_was_started_again_changes_no_source() -> None:
    with watched(ON) as server:
        server.work()
        server.page()
        server.put(OFF)
        server.page()
        own = {key: value for key, value in server.before.items() if key.startswith(TOKENS)}
        server.counted, server.started = 0, server.started + 1000
        server.before.clear()
        assert sample(server.page(), TOKENS) is None
        server.before = own
        server.put(ON)
        server.work()
        assert 0 < number(server.page(), TOKENS) < BEFORE


def test_an_engine_that_was_retired_leaves_its_counts_to_nobody() -> None:
    with watched(ON) as server:
        server.work()
        server.page()
        server.source.up = False
        server.target.retire()
        assert sample(server.page(), TOKENS) is None


def test_every_family_that_events_count_is_watched_for_a_change_of_source() -> None:
    assert {row.family for row in CATALOGUE if row.events and row.kind == "counter"} <= COUNTED
