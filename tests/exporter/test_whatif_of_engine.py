"""Our engine finds what the curve predicts at its pool's size, under eviction and preemption."""

import pytest

from benchmarks.engine_stream import Recording
from kvscope_events.events import PrefixLookup, RequestPreempted
from kvscope_exporter.state import Cache


@pytest.mark.parametrize(
    ("num_blocks", "running", "is_preempted"), [(900, 6, False), (400, 12, True)]
)
def test_the_engine_finds_what_is_predicted(
    num_blocks: int, running: int, is_preempted: bool
) -> None:
    cache = Cache()
    batches = Recording(num_blocks, running, seed=3).batches(30_000)
    for batch in batches:
        cache.on_batch(batch)
    cache.whatif.check()
    events = [event for batch in batches for event in batch.events]
    assert any(isinstance(event, RequestPreempted) for event in events) == is_preempted
    lookups = [event for event in events if isinstance(event, PrefixLookup)]
    first = [event for event in lookups if not event.resumed]
    queried = sum(len(event.hashes) for event in first)
    assert cache.whatif.queried_blocks == queried
    # Copies of one name, and blocks that are handed out before the oldest: exact but for these.
    assert cache.whatif.error_blocks <= queried / 1_000
    hits = cache.whatif.hit_blocks
    assert abs(hits["1"] - cache.hit_blocks["first"]) <= cache.whatif.error_blocks
    assert hits["0.5"] < hits["1"] < hits["2"], "the pool is too small for the conversations"
