"""Predicted hits equal those of real pools of those sizes; what is not known is not shown."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from exporter.fold import Cache
from exporter.fold.cache.curve import Curve
from kvscope_events.events import EngineEvent
from kvscope_events.vocabulary import ReleaseCause
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


class EqualsTheDefinition(RuleBasedStateMachine):
    """Requests that compute for a while, copies, resets, preemptions: counts as by plain lists."""

    def __init__(self) -> None:
        super().__init__()
        self.cache, self.oracle = Cache(), Oracle()
        self.pool = TreePool(USABLE, self.tell)
        self.sequences = 0

    def tell(self, event: EngineEvent) -> None:
        self.cache.apply(event)
        self.oracle.apply(event)

    @rule(
        path=PATHS,
        unnamed=st.integers(0, 2),
        at_once=st.booleans(),
        resumed=st.sampled_from([0, 1]),
    )
    def started(self, path: list[bytes], unnamed: int, at_once: bool, resumed: int) -> None:
        if self.pool.has_room(path, unnamed):
            self.sequences += 1
            self.pool.start(self.sequences, path, unnamed, at_once=at_once, resumed=bool(resumed))

    @precondition(lambda self: self.pool.running)
    @rule(data=st.data())
    def computed(self, data: st.DataObject) -> None:
        self.pool.compute(data.draw(st.sampled_from(sorted(self.pool.running))))

    @precondition(lambda self: self.pool.running)
    @rule(data=st.data(), cause=st.sampled_from(["finished", "aborted", "preempted"]))
    def ended(self, data: st.DataObject, cause: ReleaseCause) -> None:
        self.pool.end(data.draw(st.sampled_from(sorted(self.pool.running))), cause)

    @rule()
    def reset(self) -> None:
        self.pool.reset()

    @rule(path=PATHS)
    def ordered_out(self, path: list[bytes]) -> None:
        self.pool.order_out(path[-1])

    @rule()
    def lost_batches(self) -> None:
        self.cache.on_gap()
        assert self.cache.whatif.curve(None) is None
        assert not self.cache.whatif.hit_blocks
        self.tell(self.pool.snapshot())

    @invariant()
    def the_counts_are_the_definitions(self) -> None:
        curve = since_start(self.cache)
        whatif = self.cache.whatif
        for point in curve.points:
            if point.capacity_blocks is None:
                assert point.hit_blocks == self.oracle.seen_blocks
            else:
                assert point.hit_blocks == self.oracle.hits_at(point.capacity_blocks), point
        assert whatif.error_blocks == self.oracle.error_at(USABLE)
        asked = [event for event, _ in self.oracle.lookups if not event.resumed]
        assert whatif.queried_blocks == sum(len(event.hashes) for event in asked)


TestEqualsTheDefinition = EqualsTheDefinition.TestCase
TestEqualsTheDefinition.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
