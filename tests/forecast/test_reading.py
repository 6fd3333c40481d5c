"""Reading a forecast changes nothing, so a recording of the stream gives the same one."""

from collections.abc import Iterator
from random import Random

import pytest

from benchmarks.forecast.loads import steady
from benchmarks.forecast.simulator import Simulator
from kvscope_events.events import (
    Batch,
    BlocksAllocated,
    BlocksReleased,
    EngineEvent,
    PagesAllocated,
    PagesReleased,
    PoolCounted,
    PoolCreated,
)
from kvscope_exporter.state import Exhaustion

SECONDS = 400.0


def load(*, pauses: bool) -> Iterator[Batch]:
    calls = steady(Random(5), SECONDS)
    kept = (call for call in calls if not pauses or call.at % 120 < 90)
    return Simulator(700, max_num_seqs=40).play(kept, SECONDS)


def counted(event: EngineEvent) -> EngineEvent:
    """The same as an engine reports it whose pages have no numbers; decodes' have no sequence."""
    match event:
        case PoolCreated():
            return PoolCounted(event.num_blocks, event.block_size, 0, 0, 0, 0, 0)
        case BlocksAllocated():
            owner = None if event.cause == "decode" else event.sequence
            return PagesAllocated(owner, len(event.blocks), event.cause)
        case BlocksReleased(cause="finished" | "aborted" | "preempted" as cause):
            blocks = len(event.cached), len(event.free), len(event.shared)
            return PagesReleased(event.sequence, *blocks, cause)
    return event


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("pauses", "is_counted"),
    [
        pytest.param(pauses, is_counted, marks=() if pauses and is_counted else pytest.mark.nightly)
        for pauses in (False, True)
        for is_counted in (False, True)
    ],
)
def test_a_page_is_the_same_whether_or_not_one_was_read_before(
    pauses: bool, is_counted: bool
) -> None:
    random, seldom, often = Random(7), Exhaustion(), Exhaustion()
    compared = 0
    for number, batch in enumerate(load(pauses=pauses)):
        if is_counted:
            batch = Batch(batch.seq, batch.time_ns, [counted(event) for event in batch.events])
        seldom.on_batch(batch)
        often.on_batch(batch)
        for _ in range(random.choices(range(3), (8, 1, 1))[0]):
            assert often.probabilities == often.probabilities
            assert often.committed_blocks is not None
        if number % 97 == 0:
            compared += bool(seldom.probabilities)
            assert often.probabilities == seldom.probabilities, batch.time_ns
            assert often.committed_blocks == seldom.committed_blocks
    assert compared > 10
