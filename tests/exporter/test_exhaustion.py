"""The pool's forecast: what is committed, against the requests themselves; when the trend ends."""

import pytest

from kvscope_events.events import (
    Batch,
    DeviceMemorySampled,
    EngineEvent,
    PoolCreated,
    RequestPreempted,
    StepCompleted,
)
from exporter.fold import Exhaustion
from tests.support.accounting import Accounting

SECOND = 10**9


def step(active: int, *, running: int = 0) -> StepCompleted:
    return StepCompleted(1, running, 0, 0, 0, 0, 0, active, 0, 0, [])


def batch(seconds: float, *events: EngineEvent) -> Batch:
    return Batch(0, round(seconds * SECOND), list(events))


def grown(per_second: float, *, seconds: int = 20, capacity: int = 1_000) -> Exhaustion:
    fold = Exhaustion()
    fold.on_batch(batch(0, PoolCreated(capacity, 16, 0)))
    for at in range(2 * seconds):
        fold.on_batch(batch(at / 2, step(round(per_second * at / 2))))
    return fold


def test_committed_blocks_are_what_the_running_requests_may_still_need() -> None:
    engine = Accounting(num_blocks=14, max_num_seqs=4, max_num_batched_tokens=40)
    fold = Exhaustion()
    for number in range(6):
        engine.add([number % 2] * (6 + number), 15)
    seen = 0
    while engine.live:
        before = len(kvscope_events.events)
        engine.step()
        running = engine.scheduler.running
        fold.on_batch(
            batch(0, *kvscope_events.events[before:], step(engine.pool.num_active, running=len(running)))
        )
        most = (r.prompt_length + r.sampling.max_tokens for r in running)
        owed = sum(
            -(-(tokens - 1) // 4) - len(r.block_table)
            for tokens, r in zip(most, running, strict=True)
        )
        assert fold.committed_blocks == engine.pool.num_active + owed
        seen += 1
    assert seen > 20
    assert any(isinstance(e, RequestPreempted) for e in kvscope_events.events)
    assert fold.committed_blocks == 0


def test_after_a_gap_nothing_is_known_until_the_requests_of_before_have_ended() -> None:
    engine = Accounting(num_blocks=40, max_num_batched_tokens=40)
    fold = Exhaustion()
    engine.add([1] * 8, 10)
    engine.step()
    fold.on_batch(batch(0, *kvscope_events.events, step(engine.pool.num_active, running=1)))
    assert fold.committed_blocks is not None
    fold.on_gap()
    engine.step()
    fold.on_batch(batch(0, step(engine.pool.num_active, running=1)))
    assert fold.committed_blocks is None
    engine.run()
    fold.on_batch(batch(0, step(0, running=0)))
    assert fold.committed_blocks == 0


def test_when_all_clients_have_gone_nothing_is_committed_though_no_step_follows() -> None:
    engine = Accounting(num_blocks=10, max_num_batched_tokens=40)
    fold = Exhaustion()
    requests = [engine.add([number] * 16, 10) for number in range(2)]
    while engine.pool.num_available:
        engine.step()
    assert engine.scheduler.num_running == 2
    fold.on_batch(batch(0, *kvscope_events.events, step(engine.pool.num_active, running=2)))
    assert fold.seconds_to_exhaustion == 0.0
    before = len(kvscope_events.events)
    for request in requests:
        engine.scheduler.finish(request, "abort")
    engine.flush()
    fold.on_batch(batch(1, *kvscope_events.events[before:]))
    assert fold.committed_blocks == 0
    assert fold.seconds_to_exhaustion is None


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


def test_a_second_of_history_is_no_trend() -> None:
    fold = Exhaustion()
    fold.on_batch(batch(0, PoolCreated(100, 16, 0)))
    for at in range(4):
        fold.on_batch(batch(at / 2, step(10 * at)))
    assert fold.seconds_to_exhaustion is None


def test_requests_that_end_while_the_engine_idles_leave_nothing_committed() -> None:
    engine = Accounting(num_blocks=14, max_num_batched_tokens=40)
    fold = Exhaustion()
    requests = [engine.add([number] * 8, 20) for number in range(2)]
    engine.step()
    fold.on_batch(batch(0, *kvscope_events.events, step(engine.pool.num_active, running=2)))
    before = len(kvscope_events.events)
    for request in requests:  # both clients go away: no step follows
        engine.scheduler.finish(request, "abort")
    engine.flush()
    fold.on_batch(batch(1, *kvscope_events.events[before:]))
    assert fold.committed_blocks == 0


def test_an_idle_engine_does_not_approach_the_end() -> None:
    fold = grown(10.0)
    assert fold.seconds_to_exhaustion is not None
    fold.on_batch(batch(20, step(0)))
    for at in range(30):  # all that an idle engine says
        fold.on_batch(batch(21 + at, DeviceMemorySampled(1, None, 0, 0)))
    assert fold.seconds_to_exhaustion is None
