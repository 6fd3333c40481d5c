"""Rows of a step, waiting and preempted sequences."""

import gc
from typing import Any

import pytest

from kvscope_engine.config import CacheConfig, SchedulerConfig
from kvscope_engine.request import Sequence, SequenceState
from kvscope_events.events import (
    AllocationFailed,
    PrefixLookup,
    RequestPreempted,
    RequestResumed,
    RequestScheduled,
)
from tests.support.accounting import Accounting


def of_type(engine: Accounting, kind: type) -> list[Any]:
    return [e for e in engine.events if isinstance(e, kind)]


def test_a_long_prompt_is_computed_in_chunks_and_starves_no_decode() -> None:
    engine = Accounting(num_blocks=20, max_num_batched_tokens=8)
    short = engine.add([1, 2, 3], 20)
    engine.step()
    long = engine.add([4] * 30, 2)
    for step in range(1, 5):
        engine.step()
        assert short.num_output_tokens == step + 1, "the decode waited for a prefill"
        assert long.num_computed_tokens == min(30, 7 * step)
    engine.run()


def test_without_chunked_prefill_a_prompt_is_one_step() -> None:
    engine = Accounting(
        num_blocks=40, max_num_batched_tokens=40, enable_chunked_prefill=False, max_num_seqs=4
    )
    requests = [engine.add([i] * 15, 3) for i in range(3)]
    engine.step()
    assert [r.num_computed_tokens for r in requests] == [15, 15, 0]  # 10 tokens are no prompt
    engine.run()


def test_nobody_overtakes_a_request_that_does_not_fit() -> None:
    engine = Accounting(num_blocks=10, max_num_batched_tokens=40)
    engine.add([1] * 24, 12)
    engine.step()
    large, small = engine.add([2] * 24, 2), engine.add([3], 2)
    engine.step()
    assert large.state is SequenceState.WAITING
    assert small.state is SequenceState.WAITING
    engine.run()


def test_the_newest_request_is_preempted_and_comes_back_before_later_ones() -> None:
    engine = Accounting(num_blocks=10, max_num_batched_tokens=40, max_num_seqs=3)
    first, second = engine.add([1] * 16, 20), engine.add([2] * 16, 20)
    engine.step()
    while not second.num_preemptions:
        engine.step()
    third = engine.add([3] * 4, 4)
    engine.run()
    assert first.num_preemptions == 0
    assert (second.admitted_ns or 0) < (third.admitted_ns or 0)
    (preempted,) = of_type(engine, RequestPreempted)
    (resumed,) = of_type(engine, RequestResumed)
    assert preempted.sequence == resumed.sequence == second.sequence_id
    assert preempted.request == resumed.request == second.request_id
    assert resumed.recompute_tokens + resumed.cached_tokens == preempted.discarded_tokens > 16
    assert resumed.stalled_ns > 0
    assert of_type(engine, AllocationFailed)[0].sequence == first.sequence_id


def test_a_step_that_preempted_admits_nobody() -> None:
    engine = Accounting(
        num_blocks=5, policy="priority", max_model_len=20, max_num_batched_tokens=40
    )
    first = engine.add([1] * 8, 8, priority=1)
    victim = engine.add([2] * 11, 4, priority=2)
    engine.step()
    urgent = engine.add([3] * 4, 4, priority=0)  # no block is left for it
    engine.step()  # the first needs a third block
    assert victim.num_preemptions == 1
    assert first.state is SequenceState.RUNNING
    assert urgent.state is SequenceState.WAITING
    engine.step()
    assert urgent.state is SequenceState.RUNNING
    engine.run()


def test_lower_priority_numbers_are_served_first_and_preempted_last() -> None:
    engine = Accounting(num_blocks=10, max_num_batched_tokens=40, max_num_seqs=2, policy="priority")
    bulk = [engine.add([i] * 16, 20, priority=5) for i in (1, 2)]
    engine.step()
    urgent_later = engine.add([3] * 16, 10, priority=0)
    engine.run()
    assert urgent_later.num_preemptions == 0
    assert bulk[1].num_preemptions > 0
    scheduled = [e.request for e in of_type(engine, RequestScheduled)]
    assert scheduled == [request.request_id for request in engine.requests]


def test_a_prefix_hit_leaves_at_least_one_token_to_compute() -> None:
    engine = Accounting(num_blocks=12)
    engine.add([1, 2, 3, 4] * 2, 1)
    engine.run()
    engine.add([1, 2, 3, 4] * 2, 1)
    engine.run()
    lookups = of_type(engine, PrefixLookup)
    assert [(e.queried_tokens, len(e.hashes), e.hit_blocks) for e in lookups] == [
        (8, 1, 0),
        (8, 1, 1),
    ]


def test_without_prefix_caching_nothing_is_looked_up_or_kept() -> None:
    engine = Accounting(enable_prefix_caching=False)
    for _ in range(2):
        engine.add([1] * 8, 4)
        engine.run()
    assert not of_type(engine, PrefixLookup)
    assert engine.pool.num_cached == 0


def test_an_aborted_request_frees_its_blocks_at_once() -> None:
    engine = Accounting()
    request = engine.add([1] * 10, 10)
    engine.step()
    engine.scheduler.finish(request, "abort")
    engine.flush()
    engine.check()
    assert engine.pool.num_active == 0


def with_clients_that_came_and_went() -> Accounting:
    engine = Accounting(max_num_seqs=1)
    engine.add([1] * 4, 30)
    engine.step()
    for _ in range(1_000):
        engine.scheduler.finish(engine.add([2], 1), "abort")
    return engine


def test_what_runs_outlasts_clients_that_come_and_go() -> None:
    engine = with_clients_that_came_and_went()
    assert engine.scheduler.num_waiting == 0
    engine.run()


def test_clients_that_come_and_go_do_not_pile_up_in_memory() -> None:
    engine = with_clients_that_came_and_went()
    aborted = {sequence.sequence_id for sequence in engine.sequences[1:]}
    assert len(aborted) == 1_000
    # The helper remembers all that it was given; the engine has to let them go.
    engine.requests, engine.sequences = engine.requests[:1], engine.sequences[:1]
    gc.collect()
    alive = [each for each in gc.get_objects() if type(each) is Sequence]
    assert sum(sequence.sequence_id in aborted for sequence in alive) < 100


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_model_len": 0}, "max_model_len must be positive, got 0"),
        ({"max_model_len": 8, "max_num_seqs": 9, "max_num_batched_tokens": 8}, "max_num_seqs"),
        (
            {"max_model_len": 4096, "enable_chunked_prefill": False},
            r"max_num_batched_tokens \(2048\) must be at least max_model_len \(4096\)",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SchedulerConfig(**settings)


def test_a_pool_of_no_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="num_gpu_blocks_override must be positive, got 0"):
        CacheConfig(num_gpu_blocks_override=0)


def test_a_long_prompt_ahead_of_a_decoding_request_does_not_starve_it() -> None:
    engine = Accounting(num_blocks=20, policy="priority", max_num_batched_tokens=8)
    decoding = engine.add([1] * 4, 10, priority=1)
    engine.step()
    long = engine.add([2] * 30, 2, priority=0)
    while not long.num_output_tokens:
        before = decoding.num_output_tokens
        engine.step()
        assert decoding.num_output_tokens == before + 1


def test_a_resumed_request_that_finds_more_than_it_lost_recomputes_nothing() -> None:
    engine = Accounting(num_blocks=10, policy="priority", max_num_batched_tokens=12)
    victim = engine.add([1] * 18, 2, priority=1)
    engine.step()
    engine.add([1] * 24, 2)  # shares what the victim has computed, and goes on
    assert engine.scheduler.shrink(engine.scheduler.schedule()) is not None
    assert (victim.num_preemptions, victim.discarded_tokens) == (1, 12)
    engine.add([2] * 12, 1)  # keeps the victim waiting until the other's prompt is there
    engine.run()
    (resumed,) = of_type(engine, RequestResumed)
    assert (resumed.recompute_tokens, resumed.cached_tokens) == (0, 12)
