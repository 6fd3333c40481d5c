"""Victims that are swapped out: their events, where they continue, and who releases which
blocks."""

import logging
from typing import Any

import pytest

from kvscope_engine.request import Sequence, SequenceState
from kvscope_engine.step import Step
from kvscope_engine.swap.chooser import Chooser
from kvscope_events.events import (
    BlocksAllocated,
    BlocksReleased,
    BlocksSwapped,
    PrefixLookup,
    RequestPreempted,
    RequestResumed,
    StepCompleted,
)
from tests.support.accounting import Accounting, continuation


def of_type(engine: Accounting, kind: type) -> list[Any]:
    return [event for event in engine.events if isinstance(event, kind)]


def under_pressure(**settings: Any) -> tuple[Accounting, Sequence, Sequence]:
    """Two sequences of four blocks that grow in a pool of ten; the second is a victim by now."""
    settings = {"swap_blocks": 16, "enable_prefix_caching": False, **settings}
    engine = Accounting(num_blocks=10, max_num_batched_tokens=40, **settings)
    first, second = engine.add([1] * 16, 20), engine.add([2] * 16, 20)
    while not second.num_preemptions:
        engine.step()
    engine.check()
    return engine, first, second


def finish(engine: Accounting) -> None:
    """Run to the end: all outputs are right, and nothing is left anywhere."""
    engine.run()
    assert engine.pool.num_active == 0
    assert engine.swap is None or engine.swap.host.num_used == 0
    for sequence in engine.sequences:
        output = sequence.tokens[sequence.prompt_length :]
        assert output == continuation(sequence.prompt, len(output))


def test_a_victim_is_copied_out_before_its_blocks_are_given_back() -> None:
    engine, _, victim = under_pressure()
    (swapped,) = of_type(engine, BlocksSwapped)
    (preempted,) = of_type(engine, RequestPreempted)
    (released,) = of_type(engine, BlocksReleased)
    order = [e for e in engine.events if e in (swapped, preempted, released)]
    assert order == [swapped, released, preempted]
    blocks = -(-preempted.discarded_tokens // 4)
    assert (swapped.direction, swapped.blocks, swapped.used) == ("out", blocks, blocks)
    assert swapped.duration_ns >= 0
    assert (preempted.mode, preempted.cause) == ("swap", "out_of_blocks")
    assert released.cause == "swapped_out"
    assert victim.state is SequenceState.WAITING
    assert len(victim.host_blocks) == blocks
    finish(engine)


def test_a_swapped_sequence_goes_on_where_it_was() -> None:
    engine, _, victim = under_pressure()
    position = victim.discarded_tokens
    while victim.state is SequenceState.WAITING:
        before = len(engine.events)
        computed = engine.step()
    assert victim.num_computed_tokens == position + 1
    assert computed <= 2, "one token for each sequence: nothing is computed again"
    told = engine.events[before:]
    (swapped,) = (e for e in told if isinstance(e, BlocksSwapped))
    blocks = -(-position // 4)
    assert (swapped.direction, swapped.blocks, swapped.used) == ("in", blocks, 0)
    taken = [(len(e.blocks), e.cause) for e in told if isinstance(e, BlocksAllocated)]
    assert (blocks, "swap_in") in taken
    (resumed,) = (e for e in told if isinstance(e, RequestResumed))
    assert (resumed.swapped_tokens, resumed.cached_tokens, resumed.recompute_tokens) == (
        position,
        0,
        0,
    )
    finish(engine)


def test_blocks_that_the_prefix_cache_still_holds_are_found_and_not_copied() -> None:
    engine, first, victim = under_pressure(enable_prefix_caching=True)
    engine.scheduler.finish(first, "abort")  # its blocks go before those of the victim do
    engine.step()
    (lookup,) = (e for e in of_type(engine, PrefixLookup) if e.resumed)
    (resumed,) = of_type(engine, RequestResumed)
    assert 0 < lookup.hit_blocks * 4 == resumed.cached_tokens < resumed.cached_tokens + 4
    assert resumed.swapped_tokens == victim.discarded_tokens - resumed.cached_tokens > 0
    copied_in = of_type(engine, BlocksSwapped)[-1]
    assert copied_in.blocks == -(-victim.discarded_tokens // 4) - lookup.hit_blocks
    finish(engine)


def test_what_came_back_from_the_host_can_be_found_at_once() -> None:
    engine, first, victim = under_pressure(enable_prefix_caching=True)
    engine.scheduler.finish(first, "abort")
    engine.pool.reset()
    engine.step()
    assert of_type(engine, RequestResumed)[0].cached_tokens == 0
    other = engine.add(victim.tokens[:13], 2)
    engine.step()
    assert other.computed_prompt_tokens == 1
    finish(engine)


def test_a_reset_of_the_prefix_cache_leaves_what_is_swapped_out() -> None:
    engine, _, victim = under_pressure(enable_prefix_caching=True)
    blocks = list(victim.host_blocks)
    engine.pool.reset()
    engine.flush()
    engine.check()
    assert victim.host_blocks == blocks
    finish(engine)
    assert not any(e.recompute_tokens for e in of_type(engine, RequestResumed))


def test_a_sequence_that_finds_all_of_its_blocks_again_copies_none() -> None:
    engine = Accounting(num_blocks=10, swap_blocks=8, max_num_batched_tokens=40)
    engine.add([1] * 13, 7)
    victim = engine.add([2] * 16, 10)
    engine.step()
    while not victim.num_preemptions:  # it has five full blocks and needs the sixth itself
        engine.step()
    assert len(victim.host_blocks) == 5
    finish(engine)
    assert [(e.direction, e.blocks, e.used) for e in of_type(engine, BlocksSwapped)] == [
        ("out", 5, 5),
        ("in", 0, 0),
    ]
    (resumed,) = of_type(engine, RequestResumed)
    assert (resumed.cached_tokens, resumed.swapped_tokens, resumed.recompute_tokens) == (20, 0, 0)


def test_a_full_swap_pool_recomputes_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        engine, _, victim = under_pressure(swap_blocks=2)
    assert not victim.host_blocks
    (preempted,) = of_type(engine, RequestPreempted)
    assert preempted.mode == "recompute"
    assert not of_type(engine, BlocksSwapped)
    assert [r.message for r in caplog.records] == [
        "the swap pool is full: 5 blocks wanted, 2 of 2 free; the sequence is recomputed "
        "(--swap-space)"
    ]
    finish(engine)
    assert all(e.recompute_tokens for e in of_type(engine, RequestResumed))


def test_what_ran_out_of_device_memory_is_recomputed() -> None:
    engine = Accounting(num_blocks=20, swap_blocks=16, max_num_batched_tokens=40)
    engine.add([1] * 16, 4)
    victim = engine.add([2] * 16, 4)
    engine.step()
    engine.scheduler.shrink(engine.scheduler.schedule())
    engine.flush()
    (preempted,) = of_type(engine, RequestPreempted)
    assert (preempted.mode, preempted.cause) == ("recompute", "out_of_memory")
    assert not victim.host_blocks
    finish(engine)


def test_the_heartbeat_counts_what_is_swapped_out_among_what_waits() -> None:
    engine, _, victim = under_pressure()
    step = Step(engine.scheduler, engine.pool, engine.runner, engine.bus)
    step.run()
    engine.flush()
    beat = of_type(engine, StepCompleted)[-1]
    assert victim.state is SequenceState.WAITING
    assert (beat.waiting, beat.swapped) == (1, 1)
    assert (beat.requests_waiting, beat.requests_swapped) == (1, 1)
    finish(engine)


def test_a_call_with_a_running_sequence_is_not_swapped_out() -> None:
    engine = Accounting(num_blocks=10, swap_blocks=16, max_num_batched_tokens=40)
    call = engine.call([[1] * 16, [2] * 16], 20)
    while not call.num_preemptions:
        engine.step()
    assert (engine.scheduler.num_swapped, engine.scheduler.num_requests_swapped) == (1, 0)
    finish(engine)


def steady(out_ns: int, in_ns: int, token_ns: int) -> Chooser:
    """Has measured this much for a block out, a block in, and a token computed."""
    chooser = Chooser(block_size=4)
    chooser.copied("out", 1, out_ns)
    chooser.copied("in", 1, in_ns)
    chooser.computed(1, token_ns)
    return chooser


@pytest.mark.parametrize(("token_ns", "mode"), [(10, "recompute"), (10**9, "swap")])
def test_auto_takes_what_costs_less_and_tells_both(token_ns: int, mode: str) -> None:
    chooser = steady(1_000, 3_000, token_ns)
    engine, _, victim = under_pressure(chooser=chooser)
    (preempted,) = of_type(engine, RequestPreempted)
    tokens = preempted.discarded_tokens
    assert preempted.mode == mode
    assert preempted.swap_cost_ns == -(-tokens // 4) * 4_000
    assert preempted.recompute_cost_ns == tokens * token_ns
    assert bool(victim.host_blocks) == (mode == "swap")
    finish(engine)


def test_auto_recomputes_until_it_has_measured() -> None:
    engine, _, _ = under_pressure(chooser=Chooser(block_size=4))
    (preempted,) = of_type(engine, RequestPreempted)
    assert (preempted.mode, preempted.swap_cost_ns, preempted.recompute_cost_ns) == (
        "recompute",
        None,
        None,
    )
    finish(engine)


def test_without_a_choice_no_estimate_is_told() -> None:
    engine, _, _ = under_pressure()
    (preempted,) = of_type(engine, RequestPreempted)
    assert preempted.swap_cost_ns is preempted.recompute_cost_ns is None
    finish(engine)
