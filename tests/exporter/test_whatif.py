"""Predicted hits equal those of real pools of those sizes; what is not known is not shown."""

from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.fold import Cache
from exporter.fold.cache.curve import Curve
from kvscope_events.events import EngineEvent
from tests.exporter.tree_pool import TreePool, tree_path
from tests.exporter.whatif_oracle import Oracle

USABLE = 16
SECOND = 10**9
PATHS = st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tree_path)


@dataclass(frozen=True)
class Start:
    """A request; `ends` says which running one ends before it, if one does."""

    path: list[bytes]
    ends: int | None


STARTS = st.lists(st.builds(Start, PATHS, st.none() | st.integers(0, 5)), max_size=40)


def play(starts: list[Start], pool: TreePool, most: int) -> list[int]:
    """At most two or three requests run, so that all pools of `most` blocks or more have room.

    Returns the hits of each. Which request ends when does not depend on the pool's size.
    """
    running: list[int] = []
    hits = []
    for sequence, start in enumerate(starts):
        if running and start.ends is not None:
            pool.end(running.pop(start.ends % len(running)))
        while sum(len(starts[s].path) for s in running) + len(start.path) > most:
            pool.end(running.pop(0))
        hits.append(pool.start(sequence, start.path))
        running.append(sequence)
    return hits


def since_start(cache: Cache) -> Curve:
    curve = cache.whatif.curve(None)
    assert curve is not None
    return curve


@given(starts=STARTS)
@settings(max_examples=200, deadline=None)
def test_every_size_has_the_hits_of_a_real_pool_of_that_size(starts: list[Start]) -> None:
    cache = Cache()
    play(starts, TreePool(USABLE, cache.apply), most=8)
    for point in since_start(cache).points:
        assert not point.is_lower_bound
        assert point.queried_blocks == sum(len(start.path) for start in starts)
        if point.capacity_blocks is None:
            assert point.hit_blocks == sum(play(starts, TreePool(1_000), most=8))
        elif point.capacity_blocks >= 8:
            expected = sum(play(starts, TreePool(point.capacity_blocks), most=8))
            assert point.hit_blocks == expected, point
    assert cache.whatif.error_blocks == 0
    assert cache.whatif.hit_blocks["1"] == cache.hit_blocks["first"]


@given(starts=STARTS, unnamed=st.lists(st.integers(0, 3), min_size=40, max_size=40))
@settings(max_examples=200, deadline=None)
def test_the_present_size_is_exact_though_blocks_come_back_empty(
    starts: list[Start], unnamed: list[int]
) -> None:
    """They are handed out again before anything is evicted."""
    cache = Cache()
    pool = TreePool(USABLE, cache.apply)
    running: list[int] = []
    for sequence, start in enumerate(starts):
        if running and start.ends is not None:
            pool.end(running.pop(start.ends % len(running)))
        while not pool.has_room(start.path, unnamed[sequence]):
            pool.end(running.pop(0))
        pool.start(sequence, start.path, unnamed[sequence])
        running.append(sequence)
    assert cache.whatif.error_blocks == 0


SMALL = 8


KINDS = (
    *["start"] * 4,
    *["start at once"] * 4,
    "resume",
    *["compute"] * 4,
    *["end"] * 8,
    *("preempt", "reset", "order out", "gap"),
)


class Play:
    """One pool's events go to the fold and to the definition."""

    def __init__(self) -> None:
        self.cache, self.oracle = Cache(), Oracle()
        self.pool = TreePool(SMALL, self.tell)
        self.sequences = 0

    def tell(self, event: EngineEvent) -> None:
        self.cache.apply(event)
        self.oracle.apply(event)

    def step(self, rng: Random) -> None:
        pool, running = self.pool, sorted(self.pool.running)
        what, unnamed = rng.choice(KINDS), rng.choice([0, 0, 1])
        path = tree_path([rng.randrange(2) for _ in range(rng.randint(1, 5))])
        if what in ("start", "start at once", "resume"):
            if pool.has_room(path, unnamed):
                self.sequences += 1
                pool.start(
                    *(self.sequences, path, unnamed),
                    at_once=what != "start",
                    resumed=what == "resume",
                )
        elif what == "reset":
            pool.reset()
        elif what == "order out":
            pool.order_out(path[-1])
        elif what == "gap":
            self.cache.on_gap()
            assert self.cache.whatif.curve(None) is None
            assert not self.cache.whatif.hit_blocks
            self.tell(pool.snapshot())
        elif running:
            sequence = rng.choice(running)
            if what == "compute":
                pool.compute(sequence)
            else:
                pool.end(sequence, "preempted" if what == "preempt" else "finished")

    def check(self) -> None:
        whatif, oracle = self.cache.whatif, self.oracle
        for point in since_start(self.cache).points:
            if point.capacity_blocks is None:
                assert point.hit_blocks == oracle.seen_blocks
            else:
                assert point.hit_blocks == oracle.hits_at(point.capacity_blocks), point
        assert whatif.error_blocks == oracle.error_at(SMALL)
        asked = [event for event, _ in oracle.lookups if not event.resumed]
        assert whatif.queried_blocks == sum(len(event.hashes) for event in asked)


@pytest.mark.parametrize("seed", range(200))
def test_counts_are_those_of_the_definition(seed: int) -> None:
    rng, play = Random(seed), Play()
    for _ in range(80):
        play.step(rng)
        play.check()
