"""Simulated pools of other sizes, fed by an engine's stream: known, shown, and bounded."""

import gc
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from unittest.mock import patch

import pytest

from kvscope_events.bus import EventBus
from kvscope_events.events import (
    Batch,
    BlocksReleased,
    CacheGroup,
    EngineEvent,
    PoolCreated,
    PoolSnapshot,
)
from kvscope_events.names import suffix_of
from kvscope_exporter.clock import Clock
from kvscope_exporter.sources.pipeline import InProcessSource, Pipeline
from kvscope_exporter.state.simulation import Shadows
from kvscope_exporter.state.simulation import fold as fold_module
from kvscope_exporter.state.simulation import follower as follower_module
from kvscope_exporter.state.simulation.coordinator import Coordinator
from kvscope_exporter.state.simulation.groups import Layers
from kvscope_exporter.state.simulation.simulation import SCALES, Simulation
from tests.exporter.shadow_stream import (
    FULL,
    SIZE,
    STATE,
    WINDOW,
    alternating,
    digests,
    request,
)
from tests.support.waiting import started_since, wait_for


def stream(fold: Shadows, requests: Sequence[list[EngineEvent]], begin: int = 0) -> None:
    for seq, events in enumerate(requests, start=begin):
        fold.on_batch(Batch(seq, seq * 10**9, events))


def test_larger_pools_are_shown_once_the_present_size_agrees() -> None:
    fold = Shadows()
    # A prompt takes 12 blocks at once and leaves 7 names: 14 blocks hold one of them, 28 both.
    fold.on_batch(Batch(0, 0, [PoolCreated(15, SIZE, 0, 1, groups=[WINDOW, FULL], retention=0)]))
    stream(fold, alternating(0)[:4], begin=1)
    fold.settle()
    assert fold.known
    assert not fold.hit_blocks, "too little was looked up to say whether it agrees"
    assert fold.curve(None) is None
    stream(fold, alternating(0)[4:], begin=5)
    fold.settle()
    fold.check()
    assert fold.agrees
    assert (fold.queried_blocks, fold.error_blocks) == (200, 0)
    assert fold.hit_blocks["1"] == 0
    assert fold.hit_blocks["2"] == fold.hit_blocks["4"] == fold.hit_blocks["inf"] == 190
    assert "0.25" not in fold.hit_blocks, "one request alone needs more blocks than that"
    curve = fold.curve(None)
    assert curve is not None
    assert [point.capacity_blocks for point in curve.points] == [3, 7, 10, 14, 21, 28, 56, None]


@pytest.mark.parametrize(
    ("groups", "retention", "is_dense"),
    [
        ([WINDOW, FULL], None, True),
        ([WINDOW, FULL], 2 * SIZE, True),  # two blocks before each place, which is all of them
        ([WINDOW, FULL], 1, True),
        ([WINDOW, FULL], 3 * SIZE, False),
        ([WINDOW, FULL], 0, False),
        ([STATE, FULL], SIZE, True),
        ([STATE, FULL], 2 * SIZE, False),
        ([STATE, WINDOW, FULL], 2 * SIZE, False),  # dense enough for windows, not for states
    ],
)
def test_a_pool_that_keeps_every_window_and_state_is_simulated_once(
    groups: list[CacheGroup],
    retention: int | None,
    is_dense: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []

    class Counted(Coordinator):
        def __init__(self, capacity: int, layers: Sequence[Layers], block_size: int) -> None:
            super().__init__(capacity, layers, block_size)
            made.append(capacity)

    monkeypatch.setattr(follower_module, "Coordinator", Counted)
    fold = Shadows()
    fold.on_batch(Batch(0, 0, [PoolCreated(29, SIZE, 0, 1, groups=groups, retention=retention)]))
    stream(fold, alternating(0), begin=1)
    fold.settle()
    assert made.count(28) == (1 if is_dense else 2)
    assert len(made) == len(SCALES) + 1 + (not is_dense)


def test_a_pool_that_keeps_every_window_finds_as_much_as_one_that_would() -> None:
    fold = Shadows()
    fold.on_batch(
        Batch(0, 0, [PoolCreated(41, SIZE, 0, 1, groups=[WINDOW, FULL], retention=2 * SIZE)])
    )
    stream(fold, alternating(5), begin=1)
    fold.settle()
    curve = fold.curve(None)
    assert curve is not None
    same = next(point for point in curve.points if point.scale == 1)
    assert curve.retaining_hit_blocks == same.hit_blocks == 190


def test_windows_begin_with_the_pool_and_not_with_the_producers_clock() -> None:
    """That clock is the uptime of a machine: a gain a second would be spread over all of it."""
    fold, begin = Shadows(), 86_400 * 10**9
    created = PoolCreated(15, SIZE, 0, 1, groups=[WINDOW, FULL], retention=0)
    fold.on_batch(Batch(0, begin, [created]))
    for seq, events in enumerate(alternating(0), 1):
        fold.on_batch(Batch(seq, begin + seq * 10**9, events))
    fold.settle()
    for seconds in (None, 3600.0, 300.0):
        curve = fold.curve(seconds)
        assert curve is not None
        assert curve.seconds == 40
        assert curve.queried_blocks == fold.queried_blocks == 40 * 5
        assert {point.known_seconds for point in curve.points if point.scale == 4} == {40}


def test_a_lookup_after_a_pause_counts_when_it_comes() -> None:
    fold = Shadows()
    created = PoolCreated(15, SIZE, 0, 1, groups=[WINDOW, FULL], retention=0)
    fold.on_batch(Batch(0, 0, [created]))
    stream(fold, alternating(0))
    pause_ns = 7200 * 10**9
    for number in range(40, 80):
        events = request(1 + number, number % 2, 0)
        fold.on_batch(Batch(number, pause_ns + number * 10**9, events))
    fold.settle()
    curve = fold.curve(3600.0)
    assert curve is not None
    assert curve.queried_blocks == 40 * 5


def test_nothing_is_shown_while_the_engine_finds_something_else() -> None:
    fold = Shadows()
    fold.on_batch(Batch(0, 0, [PoolCreated(15, SIZE, 0, 1, groups=[WINDOW, FULL], retention=0)]))
    stream(fold, alternating(5), begin=1)
    fold.settle()
    assert not fold.agrees
    assert fold.hit_blocks == {}
    assert fold.curve(None) is None
    assert fold.error_blocks == 190


def test_larger_pools_are_unknown_after_a_gap_until_they_were_filled() -> None:
    fold = Shadows()
    names = [one + suffix_of(1) for one in digests(9, 2)]
    snapshot = PoolSnapshot(
        15,
        SIZE,
        0,
        1,
        [0] * 3 + [2] + [0] * 11,
        [None, *names, None, *[None] * 11],
        [1, 2],
        groups=[WINDOW, FULL],
        retention=0,
    )
    fold.on_batch(Batch(0, 0, [snapshot]))
    stream(fold, alternating(0), begin=1)
    stream(fold, [[BlocksReleased(99, [], [3], [], "finished")]], begin=60)
    fold.on_gap()
    fold.settle()
    assert not fold.known
    fold.on_batch(Batch(61, 61 * 10**9, [snapshot]))
    stream(fold, [request(100 + n, n, 0) for n in range(4)], begin=62)
    fold.settle()
    assert fold.known
    fold.check()
    assert "4" not in fold.hit_blocks


def followed() -> threading.Thread:
    """The thread of a fold that is gone."""
    fold = Shadows()
    fold.on_batch(Batch(0, 0, [PoolCreated(15, SIZE, 0, 1, groups=[WINDOW, FULL], retention=0)]))
    stream(fold, alternating(0), begin=1)
    wait_for(lambda: fold.queried_blocks == 200, "the thread has caught up")
    assert fold._thread is not None
    return fold._thread


def test_a_thread_follows_and_ends_with_the_fold() -> None:
    thread = followed()

    def has_ended() -> bool:
        gc.collect()  # again, if the thread had the fold while it was collected before
        return not thread.is_alive()

    wait_for(has_ended, "the thread ends")


@pytest.mark.parametrize(
    "groups",
    [[FULL], [WINDOW], [WINDOW, STATE], [FULL, CacheGroup("state", 8)]],
)
def test_other_pools_are_left_alone(groups: list[CacheGroup]) -> None:
    before = threading.enumerate()
    fold = Shadows()
    fold.on_batch(Batch(0, 0, [PoolCreated(15, SIZE, 0, 1, groups=groups)]))
    stream(fold, alternating(0), begin=1)
    fold.settle()
    assert not fold.known
    assert started_since(before) == []


POOL = PoolCreated(15, SIZE, 0, 1, groups=[WINDOW, FULL], retention=0)
EMPTY = PoolSnapshot(
    *(15, SIZE, 0, 1, [0] * 15, [None] * 15, []), groups=[WINDOW, FULL], retention=0
)


def test_a_simulation_that_failed_takes_no_more_memory(caplog: pytest.LogCaptureFixture) -> None:
    fold = Shadows()
    with patch.object(Simulation, "take", side_effect=RuntimeError("a defect")):
        fold.on_batch(Batch(0, 0, [POOL]))
        stream(fold, alternating(0)[:1], begin=1)
        thread = fold._thread
        assert thread is not None
        wait_for(lambda: not thread.is_alive(), "the thread gives up")
    assert "the simulation failed" in caplog.text
    fold.on_gap()
    fold.on_batch(Batch(2, 2, [POOL]))
    stream(fold, alternating(0), begin=3)
    assert not fold._queue
    assert not fold.known
    assert not fold.wants_snapshot


def test_the_queue_is_bounded_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_module, "MAX_QUEUE", 100)
    fold = Shadows()
    fold.on_batch(Batch(0, 0, [POOL]))
    released = BlocksReleased(1, [], [], [], "finished")
    for seq in range(1, 50):
        fold.on_batch(Batch(seq, seq, [released] * 10))
        assert len(fold._queue) <= 100
    assert len(fold._queue) == 1, "nothing is kept for a simulation whose state is unknown"


class Cleared(deque[EngineEvent | int | None]):
    """Is cleared just when the thread has seen that it holds something."""

    def __init__(self, held: Iterable[EngineEvent | int | None]) -> None:
        super().__init__(held)
        self.cleared, self.taken = threading.Event(), threading.Event()

    def popleft(self) -> EngineEvent | int | None:
        assert self.cleared.wait(10)
        try:
            return super().popleft()
        finally:
            self.taken.set()

    def clear(self) -> None:
        super().clear()
        self.cleared.set()
        assert self.taken.wait(10)


def test_an_overflow_while_the_thread_takes_does_not_end_the_simulation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fold = Shadows()
    fold.on_batch(Batch(0, 0, [POOL]))
    fold._queue = queue = Cleared(fold._queue)
    with monkeypatch.context() as patched:
        patched.setattr(fold_module, "MAX_QUEUE", 30)
        stream(fold, alternating(0)[:6], begin=1)
    assert queue.taken.is_set()
    wait_for(lambda: not queue, "the thread has caught up")
    fold.settle()
    assert not fold._failed
    assert not fold.known
    fold.on_batch(Batch(90, 90 * 10**9, [EMPTY]))
    stream(fold, alternating(0), begin=91)
    fold.settle()
    assert fold.agrees


def test_after_an_overflow_it_asks_for_the_state_a_minute_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fold_module, "MAX_QUEUE", 30)
    fold = Shadows()
    bus = EventBus()
    bus.provide_snapshot(lambda: [EMPTY])
    subscription = bus.subscribe(64)
    pipeline = Pipeline(InProcessSource(subscription), lambda: [fold], Clock())
    bus.flush()
    pipeline.drain()
    fold.settle()
    assert fold.known
    released = BlocksReleased(1, [], [], [], "finished")
    for seq, (second, wanted) in enumerate([(10, False), (69, False), (70, True)], start=1):
        subscription.put(Batch(seq, second * 10**9, [released] * 40))
        pipeline.drain()
        assert (fold.wants_snapshot, subscription.snapshot_wanted) == (wanted, wanted)
    bus.flush()
    pipeline.drain()
    fold.settle()
    assert fold.known
    assert not fold.wants_snapshot
