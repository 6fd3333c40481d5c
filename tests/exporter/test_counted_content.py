"""Content of a counted pool by name: the same answers as of a pool with numbered blocks."""

from collections.abc import Callable
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from kvscope_events.events import (
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    EngineEvent,
    NamesCleared,
    NamesRemoved,
    NamesStored,
    PagesAllocated,
    PagesCached,
    PagesEvicted,
    PagesReleased,
    PagesShared,
    PoolCounted,
    PoolCreated,
    PrefixLookup,
    SequenceAdded,
    SequenceFinished,
)
from kvscope_events.producers import CONTENT_EVENTS, SGLANG_EVENTS, in_order
from kvscope_exporter.state import Cache
from tests.exporter.stream import batch_of, block_hash, hello, step
from tests.exporter.tree_pool import BLOCK_SIZE, TreePool, tree_path

NAMED = hello(server="sglang", tells=in_order(SGLANG_EVENTS | CONTENT_EVENTS))
UNNAMED = hello(server="sglang", tells=in_order(SGLANG_EVENTS))
USABLE = 16
MOST_HELD = 8
PATHS = st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tree_path)
STARTS = st.lists(st.tuples(PATHS, st.none() | st.integers(0, 5)), min_size=15, max_size=60)


class Counted:
    """Reports the events of a pool with numbered blocks as those of a counted one."""

    def __init__(self, tell: Callable[[EngineEvent], None]) -> None:
        self.tell = tell
        self.references: dict[int, int] = {}
        tell(NAMED)

    def __call__(self, event: EngineEvent) -> None:
        for counted in self.of(event):
            self.tell(counted)

    def of(self, event: EngineEvent) -> list[EngineEvent]:
        if isinstance(event, PoolCreated):
            return [PoolCreated(event.num_blocks - 1, event.block_size, 0)]
        if isinstance(event, BlocksAllocated):
            self.references.update(dict.fromkeys(event.blocks, 1))
            return [PagesAllocated(event.sequence, len(event.blocks), event.cause)]
        if isinstance(event, BlocksShared):
            activated = sum(1 for block in event.blocks if not self.references.get(block))
            for block in event.blocks:
                self.references[block] = self.references.get(block, 0) + 1
            return [PagesShared(event.sequence, len(event.blocks), activated, "prefix_hit")]
        if isinstance(event, BlocksCached):
            pages = PagesCached(event.sequence, len(event.blocks))
            return [pages, NamesStored("device", event.hashes, event.parent)]
        if isinstance(event, BlocksEvicted):
            return [
                PagesEvicted(len(event.blocks), event.cause),
                NamesCleared("device")
                if event.cause == "reset"
                else NamesRemoved("device", event.hashes),
            ]
        if isinstance(event, BlocksReleased):
            for block in (*event.cached, *event.free, *event.shared):
                self.references[block] -= 1
            counts = (len(event.cached), len(event.free), len(event.shared))
            return [PagesReleased(event.sequence, *counts, "finished"), step(slots_filled=None)]
        return [event]


def play(starts: list[tuple[list[bytes], int | None]], pool: TreePool) -> list[int]:
    """Requests of which a few run at a time; returns the hits of each."""
    running: list[int] = []
    hits = []
    for sequence, (path, ends) in enumerate(starts):
        if running and ends is not None:
            pool.end(running.pop(ends % len(running)))
        while sum(len(starts[s][0]) for s in running) + len(path) > MOST_HELD:
            pool.end(running.pop(0))
        hits.append(pool.start(sequence, path))
        running.append(sequence)
    return hits


def both(starts: list[tuple[list[bytes], int | None]]) -> tuple[Cache, Cache]:
    numbered, counted = Cache(), Cache()
    translated = Counted(counted.apply)

    def tell(event: EngineEvent) -> None:
        numbered.apply(event)
        translated(event)

    play(starts, TreePool(USABLE, tell))
    return numbered, counted


@given(starts=STARTS)
def test_every_size_misses_and_regret_are_those_of_numbered_blocks(
    starts: list[tuple[list[bytes], int | None]],
) -> None:
    numbered, counted = both(starts)
    counted.counted.check()
    counted.whatif.check()
    assert counted.known
    assert counted.missed_blocks == numbered.missed_blocks
    assert counted.hit_blocks == numbered.hit_blocks
    assert counted.whatif.error_blocks == numbered.whatif.error_blocks == 0
    assert counted.whatif.curve(None) == numbered.whatif.curve(None)
    assert counted.regret.tokens == numbered.regret.tokens


@given(starts=STARTS)
def test_a_pool_of_half_the_size_has_the_predicted_hits(
    starts: list[tuple[list[bytes], int | None]],
) -> None:
    counted = Cache()
    play(starts, TreePool(USABLE, Counted(counted.apply)))
    curve = counted.whatif.curve(None)
    assert curve is not None
    (half,) = [point for point in curve.points if point.scale == 0.5]
    assert half.hit_blocks == sum(play(starts, TreePool(USABLE // 2)))


def path_of(*numbers: int) -> list[bytes]:
    return [block_hash(number) for number in numbers]


def lookup(sequence: int, path: list[bytes], hits: int = 0) -> PrefixLookup:
    return PrefixLookup(sequence, BLOCK_SIZE * len(path) + 1, path, hits)


def test_generated_pages_named_after_the_release_are_found_again() -> None:
    cache = Cache()
    prompt, answer = path_of(1, 2), path_of(3, 4)
    cache.on_batch(
        batch_of(
            *(NAMED, PoolCreated(8, BLOCK_SIZE, 0), lookup(1, prompt)),
            *(PagesAllocated(1, 4, "prefill"), PagesCached(1, 2)),
            *(NamesStored("device", prompt, None), step(slots_filled=None)),
        )
    )
    cache.on_batch(
        batch_of(
            *(PagesCached(1, 2), PagesReleased(1, 4, 0, 0, "finished")),
            *(NamesStored("device", answer, prompt[-1]), step(slots_filled=None)),
        )
    )
    cache.counted.check()
    cache.on_batch(batch_of(lookup(2, [*prompt, *answer], 4), PagesShared(2, 4, 4, "prefix_hit")))
    assert cache.whatif.error_blocks == 0
    curve = cache.whatif.curve(None)
    assert curve is not None
    assert {point.scale: point.hit_blocks for point in curve.points}[0.5] == 4


def test_an_exporter_that_comes_late_knows_the_names_once_it_has_seen_all() -> None:
    cache = Cache()
    old, new = path_of(1, 2), path_of(3)
    cache.on_batch(batch_of(NAMED, PoolCounted(8, BLOCK_SIZE, 0, 0, 0, 0, 3, 0)))
    assert not cache.known
    assert cache.missed_blocks == {"partial": 0}
    found = PagesShared(1, 2, 2, "prefix_hit")
    cache.on_batch(batch_of(lookup(1, [*old, *new], 2), found, PagesAllocated(1, 1, "prefill")))
    assert not cache.known  # a third page has a name that was not seen
    cache.on_batch(
        batch_of(
            *(PagesEvicted(1, "capacity"), NamesRemoved("device", path_of(9))),
            *(PagesCached(1, 1), NamesStored("device", new, old[-1]), step(slots_filled=None)),
        )
    )
    assert cache.known
    cache.counted.check()
    cache.on_batch(batch_of(lookup(2, path_of(1, 2, 3, 4), 3)))
    assert cache.missed_blocks["cold"] == 1
    assert cache.whatif.error_blocks == 0


def test_sizes_are_not_shown_while_the_present_one_disagrees() -> None:
    cache = Cache()
    random = Random(7)
    play(
        [(tree_path(random.choices(range(3), k=4)), 0) for _ in range(40)],
        TreePool(USABLE, Counted(cache.apply)),
    )
    assert cache.whatif.hit_blocks
    strangers = [lookup(100 + n, path_of(1000 + 2 * n, 1001 + 2 * n), 2) for n in range(20)]
    cache.on_batch(batch_of(*strangers))  # found, and never stored: no such pool
    assert cache.whatif.curve(None) is None
    assert cache.whatif.hit_blocks == {}


def test_sizes_are_not_shown_where_another_policy_than_lru_evicts() -> None:
    """At some size it agrees by chance, and at others it does not."""
    tells = in_order(SGLANG_EVENTS | CONTENT_EVENTS)
    for policy, objection in (("lru", None), (None, None), ("lfu", "policy")):
        cache = Cache()
        play([(path_of(1, 2), 0), (path_of(1, 3), 0)], TreePool(USABLE, Counted(cache.apply)))
        assert cache.whatif.objection is None
        cache.apply(hello(server="sglang", tells=tells, eviction_policy=policy))
        assert cache.whatif.objection == objection
        assert (cache.whatif.curve(None) is None) == (objection is not None)


def test_sizes_are_not_shown_while_waiting_requests_renew_what_they_ask_for() -> None:
    """Blocks that sank while their request waited are found at sizes that held them before."""
    for waits in (False, True):
        cache = Cache()
        pool = TreePool(USABLE, Counted(cache.apply))
        play([(path_of(1, 2, 3), 0)], pool)
        pool.end(0)
        if waits:
            cache.apply(SequenceAdded(9, 9, 3 * BLOCK_SIZE + 1, 1))
        pool.start(1, path_of(4, 5, 6))
        pool.end(1)
        if not waits:
            cache.apply(SequenceAdded(9, 9, 3 * BLOCK_SIZE + 1, 1))
        assert pool.start(9, path_of(1, 2, 3)) == 3
        # Found at distances 4 to 6 of 16, and 1 to 3 when it came.
        assert cache.whatif.objection == ("queue" if waits else None)
        assert bool(cache.whatif.hit_blocks) != waits


def test_sequences_that_left_the_queue_without_a_lookup_are_forgotten() -> None:
    cache = Cache()
    cache.on_batch(batch_of(NAMED, PoolCreated(8, BLOCK_SIZE, 0), SequenceAdded(1, 1, 9, 1)))
    assert cache.counted.num_waiting == 1
    cache.on_batch(batch_of(SequenceFinished(1, 1, "abort", 9, 0, 1, 0, 5, None, None, None, None)))
    assert cache.counted.num_waiting == 0


def test_without_names_lookups_are_counted_and_causes_are_not() -> None:
    cache = Cache()
    asked = PrefixLookup(1, 33, [], 4, named=False)
    cache.on_batch(batch_of(UNNAMED, PoolCreated(8, BLOCK_SIZE, 0), asked))
    assert not cache.known
    assert cache.queried_blocks["first"] == 9
    assert (cache.hit_blocks["first"], cache.hit_tokens["first"]) == (4, 16)
    assert cache.missed_blocks == {"partial": 1}
    assert cache.whatif.curve(None) is None


def test_a_gap_forgets_names_and_running_sequences() -> None:
    cache = Cache()
    path = path_of(1, 2)
    cache.on_batch(batch_of(NAMED, PoolCreated(8, BLOCK_SIZE, 0), lookup(1, path)))
    cache.on_gap()
    assert not cache.known
    cache.on_batch(batch_of(NAMED, PoolCounted(8, BLOCK_SIZE, 0, 0, 0, 0, 0, 0)))
    cache.on_batch(batch_of(step(slots_filled=None)))
    assert cache.known  # an empty pool has no names
    cache.counted.check()
