"""Samples of one prompt: it is computed once, its blocks are shared, and the first write copies."""

from collections.abc import Sequence
from typing import Any

import pytest

from kvscope_engine.request import SequenceState
from kvscope_events.events import (
    AllocationFailed,
    BlockCopied,
    BlocksAllocated,
    BlocksReleased,
    BlocksShared,
    PrefixLookup,
    RequestPreempted,
    RequestScheduled,
    SequenceFinished,
)
from tests.support.accounting import Accounting, continuation

PROMPT = [1, 2, 3, 4, 5, 6, 1, 2, 3, 4]
"""Two blocks of 4, and half of a third."""


def of_type(engine: Accounting, kind: type) -> list[Any]:
    return [event for event in engine.events if isinstance(event, kind)]


def cow(engine: Accounting) -> list[Any]:
    """Events of the copies of shared blocks, in order."""
    return [
        event
        for event in engine.events
        if isinstance(event, BlockCopied)
        or (isinstance(event, BlocksAllocated | BlocksReleased) and event.cause == "cow")
    ]


def finish(engine: Accounting) -> None:
    """Let all run to their end: nothing is left, and every answer is the right one."""
    engine.run()
    assert engine.pool.num_active == 0
    for sequence in engine.sequences:
        output = sequence.tokens[sequence.prompt_length :]
        assert output == continuation(sequence.prompt, len(output), sequence.sampling.seed)


def test_a_prompt_is_computed_once_for_all_its_samples() -> None:
    engine = Accounting(num_blocks=24)
    request = engine.call([PROMPT], max_tokens=6, n=4)
    assert engine.step() == len(PROMPT)
    engine.check()
    assert engine.pool.num_active == 3
    assert [s.num_output_tokens for s in request.sequences] == [1, 1, 1, 1]
    first, *others = request.sequences
    shared = [e for e in of_type(engine, BlocksShared) if e.cause == "fork"]
    assert [(e.sequence, e.blocks) for e in shared] == [
        (s.sequence_id, first.block_table) for s in others
    ]
    assert len(of_type(engine, PrefixLookup)) == len(of_type(engine, RequestScheduled)) == 1
    finish(engine)
    computed = {e.sequence: e.computed_tokens for e in of_type(engine, SequenceFinished)}
    assert computed == {0: len(PROMPT), 1: 0, 2: 0, 3: 0}


def test_the_first_to_write_to_a_shared_block_copies_it_and_the_last_owner_writes_in_place() -> (
    None
):
    engine = Accounting(num_blocks=24)
    request = engine.call([PROMPT], max_tokens=6, n=3)
    engine.step()
    (*full, source) = request.sequences[0].block_table
    engine.step()
    engine.check()
    first, second, last = request.sequences
    assert [s.block_table[:2] for s in request.sequences] == [full] * 3
    assert last.block_table[2] == source
    assert cow(engine) == [
        event
        for s in (first, second)
        for event in (
            BlocksAllocated(s.sequence_id, [s.block_table[2]], "cow"),
            BlockCopied(s.sequence_id, source, s.block_table[2]),
            BlocksReleased(s.sequence_id, [], [], [source], "cow"),
        )
    ]
    assert engine.pool.num_active == 5
    finish(engine)


def test_a_prompt_that_ends_with_a_block_is_shared_without_a_copy() -> None:
    engine = Accounting(num_blocks=24)
    request = engine.call([PROMPT[:8]], max_tokens=6, n=4)
    engine.step()
    engine.step()
    assert not cow(engine)
    assert {tuple(s.block_table[:2]) for s in request.sequences} == {
        tuple(request.sequences[0].block_table[:2])
    }
    assert engine.pool.num_active == 2 + 4
    finish(engine)


@pytest.mark.parametrize("caching", [True, False])
def test_sharing_needs_no_prefix_cache(caching: bool) -> None:
    engine = Accounting(num_blocks=24, enable_prefix_caching=caching)
    engine.call([PROMPT], max_tokens=6, n=4)
    assert engine.step() == len(PROMPT)
    assert engine.pool.num_active == 3
    finish(engine)


def test_samples_wait_while_the_first_computes_the_prompt_in_chunks() -> None:
    engine = Accounting(num_blocks=24, max_num_batched_tokens=4)
    request = engine.call([PROMPT], max_tokens=4, n=4)
    for waiting in (3, 3, 0):
        engine.step()
        engine.check()
        assert engine.scheduler.num_waiting == waiting
        assert engine.scheduler.requests.num_waiting == 0
    assert [s.state for s in request.sequences] == [SequenceState.RUNNING] * 4
    finish(engine)
    assert sum(s.num_preemptions for s in request.sequences) == 0


def test_samples_beyond_the_limit_wait_and_share_among_themselves() -> None:
    engine = Accounting(num_blocks=40, max_num_seqs=3, enable_prefix_caching=False)
    request = engine.call([PROMPT], max_tokens=3, n=6)
    later = engine.add([6] * 4, 2)
    engine.step()
    engine.check()
    assert engine.scheduler.num_running == 3
    assert engine.scheduler.num_waiting == 4
    finish(engine)
    assert later.first_token_ns > request.sequences[-1].first_token_ns  # type: ignore[operator]
    prefills = [e.sequence for e in of_type(engine, BlocksAllocated) if e.cause == "prefill"]
    assert prefills == [0, 3, later.sequence_id], "the fourth computes the prompt for two more"


def test_a_fork_takes_the_place_of_no_one_who_waits_before_it() -> None:
    """Samples get their places when their prompt is scheduled, so no other request is admitted into
    them."""
    engine = Accounting(num_blocks=40, max_num_seqs=4, max_num_batched_tokens=40)
    engine.call([PROMPT], max_tokens=3, n=3)
    engine.call([[6] * 4], max_tokens=3, n=4)
    engine.step()
    engine.check()
    assert engine.scheduler.num_running == 4
    finish(engine)


def test_a_copy_without_room_costs_the_newest_sample_its_blocks() -> None:
    """Three blocks are shared, two are free: the third copy preempts who shares with its owner."""
    engine = Accounting(num_blocks=5, max_model_len=20)
    request = engine.call([PROMPT], max_tokens=3, n=4)
    engine.step()
    engine.step()
    engine.check()
    assert [s.num_preemptions for s in request.sequences] == [0, 0, 0, 1]
    assert [(e.sequence, e.wanted, e.available) for e in of_type(engine, AllocationFailed)] == [
        (2, 1, 0)
    ]
    assert len(of_type(engine, BlockCopied)) == 2, "the third is left alone with the block"
    (preempted,) = of_type(engine, RequestPreempted)
    assert (preempted.sequence, preempted.blocks, preempted.discarded_tokens) == (3, 3, 10)
    finish(engine)


def test_who_is_left_alone_with_a_shared_block_writes_in_place() -> None:
    engine = Accounting(num_blocks=24)
    request = engine.call([PROMPT], max_tokens=6, n=4)
    engine.step()
    for sequence in request.sequences[:3]:
        engine.scheduler.finish(sequence, "abort")
    engine.flush()
    engine.check()
    engine.step()
    assert not cow(engine)
    finish(engine)


def test_where_nothing_can_copy_every_sample_computes_its_prompt() -> None:
    engine = Accounting(num_blocks=24, forks=False, max_num_batched_tokens=40)
    engine.call([PROMPT], max_tokens=3, n=3)
    assert engine.step() == 3 * len(PROMPT)
    finish(engine)
    assert not of_type(engine, BlocksShared)


def test_a_copy_that_is_forgotten_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of content that all these tests rely on sees it."""
    engine = Accounting(num_blocks=24)

    def forget(sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy nothing."""

    monkeypatch.setattr(engine.runner, "copy", forget)
    engine.call([PROMPT], max_tokens=4, n=2)
    engine.step()
    with pytest.raises(AssertionError, match="holds other content"):
        engine.step()


def test_a_write_to_a_shared_block_is_caught() -> None:
    """Likewise, were the copy left out altogether."""
    engine = Accounting(num_blocks=24)
    engine.call([PROMPT], max_tokens=4, n=2)
    engine.step()
    engine.kv._shared_tails.clear()
    with pytest.raises(AssertionError, match="holds other content"):
        engine.step()
