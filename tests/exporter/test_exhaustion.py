"""The pool's forecast: what is committed, against the requests themselves; when the trend ends."""

from random import Random

import pytest

from kvscope_events.events import (
    Batch,
    BlocksAllocated,
    BlocksReleased,
    BlocksShared,
    CacheGroup,
    DeviceMemorySampled,
    EngineEvent,
    PoolCreated,
    RequestPreempted,
    SequenceAdded,
    SequenceFinished,
    StepCompleted,
)
from kvscope_exporter.state import Exhaustion
from tests.exporter import stream
from tests.exporter.stream import batch_of, ended

SECOND = 10**9


def step(active: int, *, running: int = 1) -> StepCompleted:
    return stream.step(active_blocks=active, running=running)


def batch(seconds: float, *events: EngineEvent) -> Batch:
    return batch_of(*events, time_ns=round(seconds * SECOND))


def grown(per_second: float, *, seconds: int = 20, capacity: int = 1_000) -> Exhaustion:
    fold = Exhaustion()
    fold.on_batch(batch(0, PoolCreated(capacity, 16, 0)))
    for at in range(2 * seconds):
        fold.on_batch(batch(at / 2, step(round(per_second * at / 2))))
    return fold


def started(held: int) -> Exhaustion:
    """A pool of blocks of 16; sequence 7 runs, may come to 6 blocks and holds this many."""
    fold = Exhaustion()
    fold.on_batch(batch(0, PoolCreated(100, 16, 0), SequenceAdded(7, 7, 60, 37)))
    allocated = BlocksAllocated(7, list(range(1, held + 1)), "prefill")
    fold.on_batch(batch(0.5, allocated, step(held, running=1)))
    return fold


def test_a_release_in_mid_request_gives_back_what_it_names() -> None:
    fold = started(held=4)  # 4 of the 6 blocks that it may hold
    assert fold.committed_blocks == 6
    fold.on_batch(batch(1, BlocksReleased(7, [], [1], [], "failed_load"), step(3, running=1)))
    assert fold.committed_blocks == 6
    fold.on_batch(
        batch(
            2,
            BlocksAllocated(7, [9], "cow"),
            BlocksReleased(7, [], [], [2], "cow"),
            step(4, running=1),
        )
    )
    assert fold.committed_blocks == 7, "its copy, and the original that others hold"


def test_pins_and_blocks_without_an_owner_are_in_no_table() -> None:
    fold = started(held=4)
    pin = BlocksShared(7, [1], "pin"), BlocksShared(None, [2], "pin")
    fold.on_batch(batch(1, *pin, BlocksAllocated(None, [8], "prefill"), step(5, running=1)))
    assert fold.committed_blocks == 5 + 2
    unpin = (
        BlocksReleased(7, [], [], [1], "unpinned"),
        BlocksReleased(None, [], [8], [], "unpinned"),
    )
    fold.on_batch(batch(2, *unpin, step(4, running=1)))
    assert fold.committed_blocks == 4 + 2


@pytest.mark.parametrize(
    "end",
    [
        BlocksReleased(7, [], [1, 2, 3, 4], [], "preempted"),
        RequestPreempted(7, 7, "recompute", "out_of_blocks", 60, 4, 1),
        ended(7),
    ],
    ids=["release", "preemption", "end"],
)
def test_a_sequence_that_stops_owes_nothing_and_takes_it_up_again_when_it_resumes(
    end: EngineEvent,
) -> None:
    fold = started(held=4)
    fold.on_batch(batch(1, end, step(0, running=0)))
    assert fold.committed_blocks == 0
    if not isinstance(end, SequenceFinished):
        fold.on_batch(batch(2, BlocksAllocated(7, [1], "prefill"), step(1, running=1)))
        assert fold.committed_blocks == 6


def test_a_window_holds_its_width_and_gives_back_what_left_it() -> None:
    fold = Exhaustion()
    groups = [CacheGroup("full_attention", 16), CacheGroup("sliding_window", 16, 32)]
    fold.on_batch(batch(0, PoolCreated(100, 16, 0, groups=groups), SequenceAdded(7, 7, 80, 17)))
    fold.on_batch(batch(1, BlocksAllocated(7, list(range(8)), "prefill"), step(8, running=1)))
    assert fold.committed_blocks == 6 + 3
    fold.on_batch(batch(2, BlocksReleased(7, [0], [], [], "out_of_window"), step(7, running=1)))
    assert fold.committed_blocks == 6 + 3


def test_the_committed_blocks_equal_those_of_a_plain_model() -> None:
    random = Random(0)
    fold = Exhaustion()
    fold.on_batch(batch(0, PoolCreated(1_000, 16, 0)))
    most: dict[int, int] = {}
    held: dict[int, int] = {}
    for number in range(600):
        events: list[EngineEvent] = []
        if len(most) < 6:
            prompt, output = random.randint(1, 60), random.randint(1, 60)
            events.append(SequenceAdded(number, number, prompt, output))
            most[number] = -(-(prompt + output - 1) // 16)
        sequence = random.choice(list(most))
        count = held.get(sequence, 0)
        act = random.choice(["grow", "grow", "grow", "partial", "preempt", "end"])
        if act == "grow":
            count = random.randint(0 if count else 1, 2)
            events.append(BlocksAllocated(sequence, [0] * count, "decode"))
            held[sequence] = held.get(sequence, 0) + count
        elif act == "partial" and count:
            events.append(BlocksReleased(sequence, [], [0], [], "failed_load"))
            held[sequence] -= 1
        elif act == "preempt" and count:
            events.append(BlocksReleased(sequence, [0] * count, [], [], "preempted"))
            events.append(RequestPreempted(sequence, sequence, "recompute", "reset", 1, count, 1))
            del held[sequence]
        elif act == "end":
            if sequence in held:
                events.append(BlocksReleased(sequence, [], [0] * count, [], "finished"))
            events.append(ended(sequence))
            held.pop(sequence, None)
            del most[sequence]
        active = sum(held.values())
        fold.on_batch(batch(number, *events, step(active, running=len(held))))
        owed = sum(max(0, most[s] - blocks) for s, blocks in held.items())
        assert fold.committed_blocks == active + owed


def test_sequences_of_before_a_gap_are_unknown_until_they_have_ended() -> None:
    fold = started(held=4)
    fold.on_gap()
    fold.on_batch(batch(1, BlocksAllocated(7, [9], "decode"), step(5, running=1)))
    assert fold.committed_blocks is None
    fold.on_batch(batch(2, BlocksReleased(7, [], [1, 2, 3, 4, 9], [], "aborted"), ended(7)))
    assert fold.committed_blocks == 0, "no step follows when the engine idles"


def test_a_new_pool_has_nothing_committed() -> None:
    fold = Exhaustion()
    fold.on_batch(batch(0, PoolCreated(100, 16, 0)))
    assert fold.committed_blocks == 0


def test_a_steady_growth_meets_the_end_when_it_should() -> None:
    fold = grown(10.0)
    assert fold.seconds_to_exhaustion == pytest.approx((1_000 - 195) / 10, rel=0.02)


@pytest.mark.parametrize("per_second", [0.0, 0.1])
def test_what_does_not_approach_has_no_time(per_second: float) -> None:
    assert grown(per_second).seconds_to_exhaustion is None


def test_a_shrinking_pool_has_no_time() -> None:
    fold = grown(10.0)
    for at in range(120):
        fold.on_batch(batch(20 + at / 2, step(max(0, 200 - 3 * at))))
    assert fold.seconds_to_exhaustion is None


def test_a_full_pool_has_no_time_left() -> None:
    fold = grown(100.0)
    assert fold.seconds_to_exhaustion == 0.0


def test_one_second_of_history_gives_no_trend() -> None:
    fold = Exhaustion()
    fold.on_batch(batch(0, PoolCreated(100, 16, 0)))
    for at in range(4):
        fold.on_batch(batch(at / 2, step(10 * at)))
    assert fold.seconds_to_exhaustion is None


def test_an_idle_engine_does_not_approach_the_end() -> None:
    fold = grown(10.0)
    assert fold.seconds_to_exhaustion is not None
    fold.on_batch(batch(20, step(0, running=0)))
    assert fold.seconds_to_exhaustion is None
    for at in range(30):  # all that an idle engine says
        fold.on_batch(batch(21 + at, DeviceMemorySampled(1, None, 0, 0)))
        assert fold.seconds_to_exhaustion is None
