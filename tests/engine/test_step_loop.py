"""The engine's thread: commands in, outputs out, a clean end, a crash that everybody hears of."""

import logging
import time
import weakref

import pytest

from kvscope_engine.step_loop import EngineUnavailableError, QueueFullError
from kvscope_engine.step_plan import SampledToken, StepPlan
from kvscope_events.events import (
    DeviceMemorySampled,
    DeviceOutOfMemory,
    EngineEvent,
    Hello,
    PoolSnapshot,
    RequestArrived,
    RequestFinished,
    RequestRejected,
    StepCompleted,
)
from tests.support.accounting import continuation
from tests.support.running import PATIENCE_SECONDS, Gate, Running
from tests.support.waiting import wait_for


def test_a_request_gets_its_tokens_and_a_reason(running: Running) -> None:
    request = running.submit([1, 2, 3], 6)
    wait_for(lambda: running.reason(request))
    assert running.tokens(request) == continuation([1, 2, 3], 6)
    assert running.reason(request) == "length"
    assert running.loop.health().ok
    steps = [e for e in running.all_events() if isinstance(e, StepCompleted)]
    assert [s.prefill_tokens for s in steps] == [3, 0, 0, 0, 0, 0]
    assert [s.emitted for s in steps] == [[request.sequence_id]] * 6
    assert [s.first_tokens for s in steps] == [[request.sequence_id], *[[]] * 5]
    assert [s.requests_running for s in steps] == [1, 1, 1, 1, 1, 0]
    assert steps[-2].slots_filled == 3 + 4
    assert steps[-1].active_blocks == 0


def test_an_abort_takes_effect_before_the_next_step(running: Running) -> None:
    running.runner.steps_until_hold = 4
    request, other = running.submit([1], 30), running.submit([2], 30)
    wait_for(lambda: not running.runner.open.is_set())
    running.loop.abort(request.request_id)
    had = len(running.tokens(request))
    running.runner.open.set()
    wait_for(lambda: running.reason(request))
    assert running.reason(request) == "abort"
    assert len(running.tokens(request)) <= had + 1, "only the step under way may still count"
    wait_for(lambda: running.reason(other))
    assert running.tokens(other) == continuation([2], 30)


def test_aborting_an_unknown_request_does_nothing(running: Running) -> None:
    running.loop.abort(12345)
    request = running.submit([1], 2)
    wait_for(lambda: running.reason(request) == "length")


def test_a_full_queue_refuses_and_counts() -> None:
    limited = Running(queue_limit=3)
    limited.runner.open.clear()
    limited.loop.start()
    accepted = [limited.submit([1], 2)]
    wait_for(lambda: limited.loop._commands.empty())  # now it is held inside its first step
    accepted += [limited.submit([2], 2) for _ in range(3)]
    with pytest.raises(QueueFullError, match="3 requests wait already, the limit is 3"):
        limited.submit([3], 2)
    limited.runner.open.set()
    wait_for(lambda: all(limited.reason(r) for r in accepted))
    limited.loop.shutdown(0)
    assert RequestRejected("queue_full") in limited.all_events()


def test_a_crash_ends_every_request_and_shows_in_health(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL, logger="kvscope_engine.step_loop"):
        running.runner.steps_until_hold = 3
        requests = [running.submit([i], 30) for i in range(6)]
        wait_for(lambda: not running.runner.open.is_set())
        running.runner.broken = True
        running.runner.open.set()
        wait_for(lambda: all(running.reason(r) for r in requests))
    assert {running.reason(r) for r in requests} == {"error"}
    health = running.loop.health()
    assert not health.ok
    assert health.reason == "the engine failed: BrokenDeviceError: device lost"
    with pytest.raises(EngineUnavailableError, match="device lost"):
        running.submit([1], 1)
    wait_for(lambda: running.pool.num_active == 0)
    events = running.all_events()
    reasons = [e.reason for e in events if isinstance(e, RequestFinished)]
    assert reasons == ["error"] * 6
    assert RequestRejected("engine_dead") in events
    assert [e.ready for e in events if isinstance(e, Hello)] == [False, True, False]
    running.events.request_snapshot()
    running.loop.reject("engine_dead")
    rejected, hello, snapshot = running.all_events()
    assert rejected == RequestRejected("engine_dead")
    assert isinstance(hello, Hello)
    assert not hello.ready, "snapshots know it, too"
    assert isinstance(snapshot, PoolSnapshot)


def test_who_joins_after_the_failure_learns_that_the_engine_is_not_ready(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL, logger="kvscope_engine.step_loop"):
        running.runner.broken = True
        request = running.submit([1], 30)
        wait_for(lambda: running.reason(request))
        wait_for(lambda: not running.loop.health().ok)
    late = running.bus.subscribe()
    late.request_snapshot()
    wait_for(lambda: late.queued)
    taken = late.take()
    assert taken is not None
    hello, snapshot = taken[0].events[-2:]
    assert isinstance(hello, Hello)
    assert not hello.ready
    assert isinstance(snapshot, PoolSnapshot)


def test_a_step_that_hangs_is_a_stall_and_an_idle_engine_is_none() -> None:
    engine = Running(stall_seconds=0.05)
    engine.loop.start()
    time.sleep(0.1)
    assert engine.loop.health().ok, "idle is healthy"
    engine.runner.open.clear()
    request = engine.submit([1], 2)
    wait_for(lambda: not engine.loop.health().ok)
    assert "1 requests and no step for" in engine.loop.health().reason
    engine.runner.open.set()
    wait_for(lambda: engine.reason(request))
    assert engine.loop.health().ok
    engine.loop.shutdown(0)


def test_work_is_seen_though_the_first_step_after_an_idle_time_hangs(running: Running) -> None:
    running.runner.open.clear()
    request = running.submit([1], 2)
    seen: list[EngineEvent] = []

    def arrived() -> bool:
        seen.extend(running.all_events())
        return any(isinstance(e, RequestArrived) for e in seen)

    wait_for(arrived)
    assert not running.tokens(request)


def test_shutdown_lets_requests_finish_in_time_and_aborts_the_rest() -> None:
    engine = Running()
    engine.loop.start()
    request = engine.submit([1], 30)
    engine.loop.shutdown(PATIENCE_SECONDS)
    assert engine.reason(request) == "length"
    with pytest.raises(EngineUnavailableError, match="shutting down"):
        engine.submit([1], 1)

    hurried = Running()
    hurried.loop.start()
    requests = [hurried.submit([i], 35) for i in range(8)]
    hurried.loop.shutdown(0)
    assert {hurried.reason(r) for r in requests} <= {"abort", "length"}
    assert hurried.pool.num_active == 0
    assert not hurried.loop.health().ok


def test_a_late_subscriber_gets_a_snapshot_from_an_idle_engine(running: Running) -> None:
    late = running.bus.subscribe()
    late.request_snapshot()
    batches = []

    def arrived() -> bool:
        taken = late.take()
        if taken is not None:
            batches.append(taken[0])
        return bool(batches)

    wait_for(arrived)
    *_, hello, snapshot = batches[0].events
    assert isinstance(hello, Hello)
    assert hello.ready
    assert isinstance(snapshot, PoolSnapshot)


def test_reset_forgets_what_nobody_uses(running: Running) -> None:
    request = running.submit([1] * 9, 1)
    wait_for(lambda: running.reason(request))
    wait_for(lambda: running.pool.num_cached)
    running.loop.reset_prefix_cache()
    wait_for(lambda: not running.pool.num_cached)


def test_a_step_without_memory_is_retried_smaller_and_nobody_loses_a_token(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL, logger="kvscope_engine.step_loop"):
        running.runner.memory_tokens = 3
        requests = [running.submit([i, i, i, i, i], 12) for i in range(4)]
        wait_for(lambda: all(running.reason(r) for r in requests))
    for number, request in enumerate(requests):
        assert running.tokens(request) == continuation([number] * 5, 12)
    assert running.loop.health().ok
    events = running.all_events()
    failures = [e for e in events if isinstance(e, DeviceOutOfMemory)]
    assert failures
    assert failures[0].action == "retried"
    assert failures[0].retry_tokens == failures[0].step_tokens // 2
    after = [type(e) for e in events[events.index(failures[0]) :]]
    assert after[1] is DeviceMemorySampled, "a sample follows every out-of-memory error"


class Activations:
    """Memory that a step holds while it runs."""


class LeavesActivations(Gate):
    """A runner whose failed step leaves what it held in the frames of its exception."""

    def __init__(self) -> None:
        super().__init__()
        self.held: weakref.ref[Activations] | None = None
        self.freed: list[bool] = []
        """At each dropping of caches, whether what the failed step held was gone."""

    def execute(self, plan: StepPlan) -> list[SampledToken | None]:
        activations = Activations()
        self.held = weakref.ref(activations)
        return super().execute(plan)

    def drop_caches(self) -> None:
        assert self.held is not None
        self.freed.append(self.held() is None)


def test_what_a_failed_step_held_is_free_before_caches_are_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runner = LeavesActivations()
    runner.memory_tokens = 3
    running = Running(runner=runner)
    running.loop.start()
    with caplog.at_level(logging.CRITICAL, logger="kvscope_engine.step_loop"):
        request = running.submit([1] * 8, 2)
        wait_for(lambda: running.reason(request))
    running.loop.shutdown(0)
    assert runner.freed
    assert all(runner.freed)


def test_a_request_that_no_memory_is_enough_for_ends_alone(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL, logger="kvscope_engine.step_loop"):
        running.runner.memory_tokens = 0
        doomed = running.submit([1, 2, 3], 5)
        wait_for(lambda: running.reason(doomed))
    assert running.reason(doomed) == "error"
    running.runner.memory_tokens = None
    request = running.submit([1, 2], 3)
    wait_for(lambda: running.reason(request))
    assert running.tokens(request) == continuation([1, 2], 3)
    assert running.loop.health().ok
    assert "gave_up" in [e.action for e in running.all_events() if isinstance(e, DeviceOutOfMemory)]
