"""Hits of every pool size are those that the definition gives, for any life of a pool."""

from random import Random

import pytest

from kvscope_events.events import (
    EngineEvent,
)
from kvscope_exporter.state import Cache
from tests.exporter.tree_pool import BLOCK_SIZE, TreePool, tree_path
from tests.exporter.whatif_oracle import Oracle, since_start

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
        self.before_gap = Oracle()

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
                rest = BLOCK_SIZE * (len(path) - len(pool.leading(path)))
                pool.start(
                    *(self.sequences, path, unnamed),
                    at_once=what != "start",
                    resumed=what == "resume",
                    loaded_tokens=rng.choice([0, 0, rng.randint(0, rest)]),
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
            self.before_gap = Oracle(
                lookups=self.oracle.lookups.copy(),
                seen_blocks=self.oracle.seen_blocks,
                seen_loaded=self.oracle.seen_loaded,
            )
        elif running:
            sequence = rng.choice(running)
            if what == "compute":
                pool.compute(sequence)
            else:
                pool.end(sequence, "preempted" if what == "preempt" else "finished")

    def check(self) -> None:
        whatif, oracle, before = self.cache.whatif, self.oracle, self.before_gap
        whatif.check()
        for point in since_start(self.cache).points:
            size = point.capacity_blocks
            if size is None:
                assert point.hit_blocks == oracle.seen_blocks - before.seen_blocks
                assert point.loaded_blocks == oracle.seen_loaded - before.seen_loaded
            else:
                assert point.hit_blocks == oracle.hits_at(size) - before.hits_at(size), point
                loaded = oracle.loaded_at(size) - before.loaded_at(size)
                assert point.loaded_blocks == loaded, point
        for scale, hits in whatif.hit_blocks.items():
            size = None if scale == "inf" else int(float(scale) * SMALL)
            assert hits == (oracle.seen_blocks if size is None else oracle.hits_at(size)), scale
        assert whatif.error_blocks == oracle.error_at(SMALL)
        asked = [event for event, _ in oracle.lookups if not event.resumed]
        assert whatif.queried_blocks == sum(len(event.hashes) for event in asked)


@pytest.mark.parametrize("seed", range(100))
def test_counts_are_those_of_the_definition(seed: int) -> None:
    rng, play = Random(seed), Play()
    for _ in range(80):
        play.step(rng)
        play.check()
