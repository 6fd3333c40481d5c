"""An observed engine and its server's own page: what callers saw is the front end's to tell."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kvscope_events.bus import Subscription
from kvscope_events.events import EngineEvent, FirstToken
from kvscope_events.producers import VLLM_FRONT_END_EVENTS
from kvscope_exporter.clock import Clock
from kvscope_exporter.collect.origins import PATIENCE_NS
from kvscope_exporter.recorder.recorder import Recorder
from kvscope_exporter.scrape import PageReader
from kvscope_exporter.sources.pipeline import InProcessSource
from kvscope_exporter.targets.exporter import Exporter
from kvscope_exporter.targets.target import Target
from tests.exporter.stream import batch_of, finished, hello
from tests.scrape.answers import answering, page
from tests.scrape.cases.vllm import CURRENT_PAGE
from tests.support.pages import sample

ANSWER = page(CURRENT_PAGE.encode())
SECOND = 1_000_000_000
TELLS = ["FirstToken", "RequestFinished", "RequestArrived"]


@dataclass
class Observed:
    """One engine with events, whose page answers while `is_up`."""

    subscription: Subscription = field(default_factory=lambda: Subscription(64))
    is_up: bool = False
    now_ns: int = SECOND
    seq: int = -1
    exporter: Exporter = field(init=False)
    content: bytes = ANSWER

    def put(self, *events: EngineEvent) -> None:
        self.subscription.put(batch_of(*events, seq=self.seq, time_ns=self.now_ns))
        self.seq += 1

    def page(self) -> str:
        self.now_ns += 2 * SECOND
        return self.exporter.render()[0].decode()

    def answer(self, connection: socket.socket) -> None:
        if self.is_up:
            connection.sendall(self.content)


@contextmanager
def observed(
    *, ready: bool = True, recorder: Recorder | None = None, local_engines: int | None = None
) -> Iterator[Observed]:
    """local_engines: as an API server beside says it; None: none is observed."""
    engine = Observed()
    clock = Clock(monotonic_ns=lambda: engine.now_ns)
    source = InProcessSource(engine.subscription)
    target = Target(source, compat=(), clock=clock, recorder=recorder)
    with answering(engine.answer) as url:
        reader = PageReader(url, "vllm", clock=clock, is_beside_events=True)
        beside = Subscription(1)
        api = hello(
            **{"server": "vllm", "model_name": "m", "worker": "api-0"},
            tells=sorted(VLLM_FRONT_END_EVENTS),
            local_engines=local_engines,
        )
        beside.put(batch_of(api, seq=-1, time_ns=SECOND))
        front_end = Target(InProcessSource(beside), compat=(), clock=clock)
        engine.exporter = Exporter(
            [target, *([] if local_engines is None else [front_end])],
            readers=[reader],
            clock=clock,
            process=False,
            recorder=recorder,
        )
        engine.put(hello(server="vllm", model_name="m", tells=TELLS, ready=ready))
        engine.put(
            FirstToken(1, SECOND),
            finished(1, reason="abort"),
            finished(2, reason="stop_string_or_abort"),
            finished(3, reason="stop"),
        )
        yield engine
        engine.exporter.stop()


def ends(text: str) -> dict[str, float | None]:
    reasons = ("stop", "length", "abort", "error", "stop_string_or_abort")
    return {
        reason: sample(text, "kvscope_requests_finished_total", reason=reason) for reason in reasons
    }


def test_events_tell_latencies_and_ends_where_no_page_is_read() -> None:
    with observed() as engine:
        text = engine.page()
        assert sample(text, "kvscope_time_to_first_token_seconds_count") is None, "it may come yet"
        assert ends(text) == {**dict.fromkeys(ends(text)), "abort": 1}
        engine.page()  # by now the engine is known to take requests
        engine.now_ns += PATIENCE_NS
        text = engine.page()
    assert sample(text, "kvscope_time_to_first_token_seconds_count") == 1
    assert ends(text) == {
        "stop": 1,
        "length": 0,
        "abort": 1,
        "error": 0,
        "stop_string_or_abort": 1,
    }


def test_what_callers_saw_is_told_by_the_front_end_and_only_once() -> None:
    with observed() as engine:
        engine.is_up = True
        text = engine.page()
    assert sample(text, "kvscope_time_to_first_token_seconds_count") == 4
    assert sample(text, "kvscope_request_duration_seconds_count") == 4
    assert ends(text) == {
        "stop": 9,  # with those that ended at a stop string
        "length": 43,
        "abort": 1,  # whom vLLM's page counts nowhere
        "error": 1,
        "stop_string_or_abort": None,
    }
    series = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))


def test_engines_of_other_hosts_are_left_to_the_pages_there() -> None:
    two_engines = CURRENT_PAGE + CURRENT_PAGE.replace('engine="0"', 'engine="1"')
    for local_engines, engines in ((None, {"0", "1"}), (1, {"0"}), (2, {"0", "1"})):
        with observed(local_engines=local_engines) as engine:
            engine.content, engine.is_up = page(two_engines.encode()), True
            text = engine.page()
        for family in (
            "kvscope_time_to_first_token_seconds_count",
            "kvscope_generated_tokens_total",
        ):
            shown = set(re.findall(rf'(?m)^{family}{{.*engine="(\d+)"', text))
            assert shown == engines, (local_engines, family)


def test_a_full_queue_of_an_observed_vllm_is_told_by_its_page_alone() -> None:
    with observed() as engine:
        assert sample(engine.page(), "kvscope_requests_rejected_total") is None
        engine.is_up = True
        text = engine.page()
    assert sample(text, "kvscope_requests_rejected_total", reason="queue_full") == 6 + 8


def test_a_page_that_fails_later_leaves_a_gap_and_no_other_definition() -> None:
    with observed() as engine:
        engine.is_up = True
        engine.page()
        engine.is_up = False
        text = engine.page()
        assert sample(text, "kvscope_time_to_first_token_seconds_count") is None
        assert ends(text)["stop"] is None
        assert ends(text)["abort"] == 1
        assert sample(text, "kvscope_source_up", source="page") == 0
        engine.is_up = True
        assert sample(engine.page(), "kvscope_time_to_first_token_seconds_count") == 4


def test_while_the_model_loads_nobody_misses_the_page() -> None:
    with observed(ready=False) as engine:
        text = engine.page()
        assert sample(text, "kvscope_source_up", source="page") is None
        assert "kvscope_page_errors_total" not in text
        engine.put(hello(server="vllm", model_name="m", tells=TELLS))
        engine.page()  # from now on it is awaited
        text = engine.page()
    assert sample(text, "kvscope_source_up", source="page") == 0
    assert sample(text, "kvscope_page_errors_total", kind="protocol") == 1
