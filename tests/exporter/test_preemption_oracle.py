"""The fold of preemption agrees exactly with plain loops over all events, whatever is reported."""

from random import Random
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope_events.events import (
    AllocationFailed,
    Batch,
    BlocksAllocated,
    BlocksEvicted,
    BlocksReleased,
    ContentDropped,
    EngineEvent,
    PoolCreated,
    RequestPreempted,
    RequestResumed,
)
from kvscope_events.vocabulary import PreemptionCause, PreemptionMode, ReleaseCause
from kvscope_exporter.state.preemption import UNATTRIBUTED, Preemption
from kvscope_exporter.state.preemption.fold import HISTORY
from tests.exporter.preemption_oracle import (
    Gap,
    Stream,
    bill,
    bill_of,
    history,
    history_of,
    lines_of,
    play,
)
from tests.exporter.stream import block_hash, ended, step
from tests.support.accounting import Accounting

SEQUENCES = st.integers(0, 2)
BLOCKS = st.lists(st.integers(0, 4), unique=True, max_size=5)
TOKENS = st.integers(0, 9)
OFTEN: PreemptionCause = "out_of_blocks"
KINDS: list[tuple[PreemptionMode, ReleaseCause]] = [
    ("recompute", "preempted"),
    ("swap", "swapped_out"),
]
CAUSES = st.sampled_from([OFTEN, *get_args(PreemptionCause)])


@st.composite
def releases(draw: st.DrawFn, sequence: int | None, cause: str) -> BlocksReleased:
    blocks = draw(BLOCKS)
    first, second = sorted(draw(st.tuples(st.integers(0, 5), st.integers(0, 5))))
    return BlocksReleased(
        sequence,
        blocks[:first],
        blocks[first:second],
        blocks[second:],
        cause,  # type: ignore[arg-type]
    )


@st.composite
def preemptions(draw: st.DrawFn) -> list[EngineEvent]:
    """As a producer reports it; the blocks may be given back before or after, in parts, or
    never."""
    sequence = draw(SEQUENCES)
    told: list[EngineEvent] = []
    if draw(st.booleans()):
        told.append(AllocationFailed(draw(SEQUENCES), 2, draw(TOKENS)))
    mode, loss = draw(st.sampled_from(KINDS))
    parts = draw(st.lists(releases(sequence, loss), max_size=2))
    discarded = draw(TOKENS)
    event = RequestPreempted(sequence, 10 + sequence, mode, draw(CAUSES), discarded, 3, 5)
    place = draw(st.integers(0, len(parts)))
    return [*told, *parts[:place], event, *parts[place:]]


def names(blocks: list[int]) -> list[bytes]:
    return [block_hash(block) for block in blocks]


ONE_EVENT = st.one_of(
    st.builds(RequestResumed, SEQUENCES, st.just(0), TOKENS, TOKENS, st.integers(0, 99)),
    st.builds(RequestResumed, SEQUENCES, st.just(0), TOKENS, TOKENS, st.integers(0, 99), TOKENS),
    st.builds(ended, SEQUENCES),
    st.builds(BlocksAllocated, st.none() | SEQUENCES, BLOCKS, st.just("prefill")),
    st.builds(BlocksAllocated, st.none() | SEQUENCES, BLOCKS, st.just("decode")),
    st.builds(
        lambda blocks, cause: BlocksEvicted(blocks, names(blocks), cause),
        BLOCKS,
        st.sampled_from(["capacity", "reset", "ordered"]),
    ),
    st.builds(lambda blocks: ContentDropped(blocks, names(blocks), "replaced"), BLOCKS),
    releases(1, "finished"),
    releases(1, "finished"),
    st.just(PoolCreated(8, 4, 0)),
    st.builds(AllocationFailed, SEQUENCES, TOKENS, TOKENS),
    st.just(step()),
)
EVENTS = st.lists(
    st.one_of(
        preemptions(),
        ONE_EVENT.map(lambda event: [event]),
        ONE_EVENT.map(lambda event: [event]),
    ),
    max_size=8,
).map(lambda parts: [event for part in parts for event in part])
PARTS = st.one_of(EVENTS, EVENTS, EVENTS, EVENTS, st.just(None))


@given(st.lists(PARTS, max_size=14))
def test_the_fold_agrees_with_plain_loops_whatever_is_told(
    parts: list[list[EngineEvent] | None],
) -> None:
    stream: Stream = [
        Gap() if events is None else Batch(place, 7 * place, events)
        for place, events in enumerate(parts)
    ]
    fold = Preemption()
    play(stream, fold)
    assert history_of(fold) == history(stream)[-HISTORY:]
    assert bill_of(fold) == bill(stream)
    assert fold.num_gaps == parts.count(None)


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("swap_blocks", [0, 8], ids=["recompute", "swap"])
def test_the_fold_agrees_with_plain_loops_on_an_engine_under_pressure(
    caching: bool, policy: str, swap_blocks: int
) -> None:
    """Calls arrive, are aborted, run out of memory; the cache is reset; batches are lost."""
    seen: set[str] = set()
    for seed in range(12):
        stream = _under_pressure(Random(seed), caching, policy, swap_blocks)
        fold = Preemption()
        play(stream, fold)
        expected = history(stream)
        assert history_of(fold) == expected[-HISTORY:]
        assert bill_of(fold) == bill(stream)
        for kind, costs in fold.costs.items():
            answered = costs.found_tokens + costs.recomputed_tokens + costs.abandoned_tokens
            answered += costs.swapped_tokens
            seen |= {"swapped"} if costs.swapped_tokens else set()
            if kind != UNATTRIBUTED:  # each discarded token is in one place
                waiting = fold.waiting_tokens(kind)
                assert costs.discarded_tokens == answered + costs.lost_tokens + waiting
        seen |= {each["state"] for each in expected}
        seen |= {"kept" for each in expected if each["kept"]}
        seen |= {"taken by two" for each in expected if len(each["taken_by"] or ()) > 1}
        seen |= {"wanted by another" for each in expected if each["wanted_by"] is not None}
        seen |= {each["event"].cause for each in expected}
        assert len(lines_of(stream)) > 100
    assert seen >= {"resumed", "ended", "lost", "taken by two", "wanted by another"}
    assert seen >= {"out_of_blocks", "out_of_memory"}
    assert "kept" in seen, "by the cache, or by a sample that shares it"
    assert ("swapped" in seen) == (swap_blocks > 0)


def _under_pressure(random: Random, caching: bool, policy: str, swap_blocks: int) -> Stream:
    engine = Accounting(
        num_blocks=14,
        max_num_seqs=6,
        max_num_batched_tokens=40,
        enable_prefix_caching=caching,
        policy=policy,  # type: ignore[arg-type]
        swap_blocks=swap_blocks,
    )
    engine.flush()
    stream: Stream = [Batch(0, 0, list(engine.events))]
    seen = len(engine.events)
    number = 0
    while number < 40 or engine.live:
        number += 1
        if number < 40 and random.random() < 0.7:
            prompt = [random.randint(0, 2)] * random.randint(1, 16)
            engine.call([prompt], random.randint(1, 20), random.randint(1, 4), random.randint(0, 2))
        if random.random() < 0.1:
            plan = engine.scheduler.schedule()
            if len(plan.rows) > 1:
                engine.scheduler.shrink(plan)
        if random.random() < 0.05:
            engine.pool.reset()
        waiting = [s for s in engine.live if s.num_preemptions]
        if waiting and random.random() < 0.1:
            engine.scheduler.finish(random.choice(waiting), "abort")
        if engine.live:
            engine.step()
        engine.flush()
        events, seen = engine.events[seen:], len(engine.events)
        lost = random.random() < 0.03
        stream.append(Gap() if lost else Batch(number, 1_000 * number, events))
    return stream
