"""Reading a forecast changes nothing, so a recording of the stream gives the same one."""

from collections.abc import Iterator
from random import Random

import pytest

from benchmarks.forecast.loads import arrivals, call, chat
from benchmarks.forecast.simulator import Machine, Simulator
from exporter.fold import Exhaustion
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

SECONDS = 400.0


def load(*, pauses: bool) -> Iterator[Batch]:
    random = Random(5)
    machine = Machine(num_blocks=700, max_num_seqs=40, step_seconds=0.1, sequence_seconds=0.0)

    def rate(second: float) -> float:
        return 0.0 if pauses and second % 120 > 90 else 2.0

    calls = (call(at, chat(random)) for at in arrivals(random, SECONDS, rate, 2.0))
    return Simulator(machine).play(calls, SECONDS)


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
            age = random.choice([0.0, 0.3, 5.0, 60.0])
            assert often.probabilities(age) == often.probabilities(age)
            assert often.committed_blocks is not None
        if number % 97 == 0:
            age = random.choice([0.0, 1.5])
            compared += bool(seldom.probabilities(age))
            assert often.probabilities(age) == seldom.probabilities(age), batch.time_ns
            assert often.committed_blocks == seldom.committed_blocks
    assert compared > 10
