"""A page that is made in an engine's process lets its steps through."""

import time
from collections.abc import Iterator

import pytest
from prometheus_client.core import Metric as Family

from kvscope_exporter.collect.parts import TURN_SECONDS, WAIT_SECONDS, Guard, ScrapeLimiter


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    return found


def work(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_a_long_turn_ends_and_the_next_one_begins_then(waits: list[float]) -> None:
    turns = ScrapeLimiter(beside_engine=True)
    turns.begin()
    work(2 * TURN_SECONDS)
    turns.offer()
    turns.offer()
    assert waits == [WAIT_SECONDS]


def test_nothing_waits_where_no_engine_is_in_the_process(waits: list[float]) -> None:
    turns = ScrapeLimiter(beside_engine=False)
    turns.begin()
    work(2 * TURN_SECONDS)
    turns.offer()
    assert not waits


def test_parts_of_a_page_are_cut_apart(waits: list[float]) -> None:
    turns = ScrapeLimiter(beside_engine=True)
    guard = Guard(turns)

    def slow() -> Iterator[Family]:
        work(2 * TURN_SECONDS)
        yield Family("x", "", "gauge")

    turns.begin()
    for _ in range(3):
        guard.read("pool", slow)
    assert len(waits) == 2, "before each part but the first"
