"""Harm to the readers of an SGLang's events: it answers as without us, and numbers come back."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import httpx
import pytest

from tests.sglang.conftest import REFERENCE, Unobserved
from tests.sglang.counted_otherwise import ALL
from tests.sglang.counters import GAUGES, disagreements
from tests.sglang.http_load import ask
from tests.sglang.server import Observed
from tests.support.pages import sample
from tests.support.process import Process, kvscope
from tests.support.waiting import wait_for

pytestmark = [
    *(pytest.mark.sglang, pytest.mark.nightly, pytest.mark.weekly, pytest.mark.slow),
    pytest.mark.timeout(600),
]

STOPPED_SECONDS = 6.0
"""Longer than the silence after which a server counts as down."""


@dataclass
class Sidecar:
    """A second reader of the events, beside that of `kvscope run`."""

    sglang: Observed
    ended: ExitStack = field(default_factory=ExitStack)
    process: Process | None = None
    url: str = ""

    def start(self) -> None:
        self.ended.close()
        events = f"sglang={self.sglang.sockets}"
        self.process = self.ended.enter_context(
            kvscope("sidecar", "--port", "0", "--no-gpu", "--events", events)
        )
        self.url = self.process.find(r"(http://[\d.]+:\d+)")
        wait_for(self.knows, "it knows the state")

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send(number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()

    def page(self) -> str:
        return httpx.get(f"{self.url}/metrics", timeout=30).text

    def knows(self) -> bool:
        try:
            return sample(self.page(), "kvscope_source_state_known", source="wire") == 1
        except httpx.TransportError:
            return False

    def assert_equal(self) -> None:
        """Its page, and that of `kvscope run`, agree with SGLang's, which said nothing of it."""
        self.sglang.settle()
        theirs = self.sglang.server.page()
        wait_for(lambda: not disagreements(self.page(), theirs, only=GAUGES), "pages agree")
        assert sample(self.page(), "kvscope_kv_ledger_imbalance_blocks") == 0
        # Other tests may have had this server before.
        assert disagreements(self.sglang.page(), theirs, without=ALL) == []


@pytest.fixture(scope="module")
def sidecar(sglang: Observed) -> Iterator[Sidecar]:
    reader = Sidecar(sglang)
    with reader.ended:
        reader.start()
        yield reader


@contextmanager
def under_load(sglang: Observed, unobserved: Unobserved) -> Iterator[None]:
    """The same requests again and again; all answers are those of an SGLang without us, and it has
    at most one line to say."""
    ending, rounds = threading.Event(), list[list[list[int]]]()

    def work() -> None:
        while not ending.is_set():
            rounds.append(ask(sglang.server, REFERENCE))

    before, tracebacks = sglang.server.said_by_us(), sglang.server.log.count("Traceback")
    thread = threading.Thread(target=work)
    thread.start()
    try:
        time.sleep(0.5)
        yield
    finally:
        ending.set()
        thread.join()
    assert rounds
    for answers in rounds:
        assert answers == unobserved.answers
    assert len(sglang.server.said_by_us()) <= len(before) + 1
    assert sglang.server.log.count("Traceback") == tracebacks


def test_a_killed_reader_costs_sglang_nothing_and_the_next_one_knows(
    sidecar: Sidecar, unobserved: Unobserved
) -> None:
    with under_load(sidecar.sglang, unobserved):
        sidecar.kill()
        time.sleep(1)
        sidecar.start()
    sidecar.assert_equal()


def test_a_stopped_reader_costs_sglang_nothing_and_catches_up(
    sidecar: Sidecar, unobserved: Unobserved
) -> None:
    with under_load(sidecar.sglang, unobserved):
        sidecar.send(signal.SIGSTOP)
        time.sleep(STOPPED_SECONDS)
        sidecar.send(signal.SIGCONT)
        wait_for(sidecar.knows, "it knows the state again")
    sidecar.assert_equal()


def test_two_quick_restarts(sidecar: Sidecar, unobserved: Unobserved) -> None:
    with under_load(sidecar.sglang, unobserved):
        for _ in range(2):
            sidecar.kill()
            sidecar.start()
    sidecar.assert_equal()


def test_a_stopped_kvscope_run_costs_sglang_nothing_and_catches_up(
    sidecar: Sidecar, unobserved: Unobserved
) -> None:
    """Its own page misses no event."""
    sglang = sidecar.sglang
    with under_load(sglang, unobserved):
        sglang.server.send(signal.SIGSTOP)
        time.sleep(STOPPED_SECONDS)
        sglang.server.send(signal.SIGCONT)
    sidecar.assert_equal()
