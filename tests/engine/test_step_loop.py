"""The engine's thread: commands in, outputs out, a clean end, a crash that everybody hears of."""

import itertools
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import pytest

from engine.block_pool import BlockPool
from engine.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from engine.hashing import PrefixHasher, chain_seed
from engine.introduction import Introduction
from engine.kv_manager import KVManager
from engine.oom import DeviceOutOfMemoryError
from engine.request import Request
from engine.runner import SampledToken
from engine.scheduler import Scheduler
from engine.sequence import SamplingParams, Sequence
from engine.step import Step, StepOutput
from engine.step_loop import EngineUnavailableError, QueueFullError, StepLoop
from engine.step_plan import StepPlan
from kvscope_events.bus import EventBus, Subscription
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
from tests.support.accounting import ContentRunner, continuation

PATIENCE_SECONDS = 10.0
BLOCK_SIZE = 4


class BrokenDeviceError(Exception):
    """What a broken device would raise."""


class Gate(ContentRunner):
    """A runner that can be held and broken from outside."""

    def __init__(self) -> None:
        super().__init__(BLOCK_SIZE)
        self.open = threading.Event()
        self.open.set()
        self.broken = False
        self.memory_tokens: int | None = None
        """Tokens of a step that the memory is enough for; None: any number."""
        self.steps_until_hold: int | None = None

    def execute(self, plan: StepPlan) -> list[SampledToken | None]:
        if self.steps_until_hold is not None:
            self.steps_until_hold -= 1
            if self.steps_until_hold < 0:
                self.steps_until_hold = None
                self.open.clear()
        assert self.open.wait(PATIENCE_SECONDS)
        if self.broken:
            raise BrokenDeviceError("device lost")
        if self.memory_tokens is not None and plan.num_tokens > self.memory_tokens:
            raise DeviceOutOfMemoryError(plan.num_tokens * 1024)
        return super().execute(plan)


class Running:
    """A started loop and all that came out of it."""

    def __init__(
        self, *, queue_limit: int = 100, stall_seconds: float = 60.0, runner: Gate | None = None
    ) -> None:
        self.bus = EventBus()
        self.events: Subscription = self.bus.subscribe()
        settings = EngineConfig(model=ModelConfig(), cache=CacheConfig(block_size=BLOCK_SIZE))
        introduction = Introduction(settings, self.bus)
        introduction.announce(ready=True)
        self.pool = BlockPool(16, BLOCK_SIZE, self.bus)
        introduction.attach(self.pool)
        config = SchedulerConfig(max_model_len=40, max_num_seqs=4)
        scheduler = Scheduler(config, KVManager(self.pool, self.bus), self.bus, frozenset())
        self.runner = runner or Gate()
        self.outputs: list[StepOutput] = []
        self.loop = StepLoop(
            Step(scheduler, self.pool, self.runner, self.bus),
            self.bus,
            self.outputs.extend,
            introduction,
            max_num_queued_reqs=queue_limit,
            stall_seconds=stall_seconds,
        )
        self._request_ids = itertools.count(1_000)
        self._sequence_ids = itertools.count()

    def submit(self, prompt: list[int], max_tokens: int) -> Sequence:
        """A call of one sequence; returns the sequence."""
        return self.call([prompt], max_tokens).sequences[0]

    def call(self, prompts: list[list[int]], max_tokens: int, n: int = 1) -> Request:
        """A call of n sequences for each prompt."""
        request_id = next(self._request_ids)
        sequences = [
            Sequence(
                sequence_id=next(self._sequence_ids),
                request_id=request_id,
                tokens=list(prompt),
                prompt_length=len(prompt),
                sampling=SamplingParams(max_tokens=max_tokens),
                hasher=PrefixHasher(chain_seed("m"), BLOCK_SIZE),
            )
            for prompt in prompts
            for _ in range(n)
        ]
        request = Request(
            request_id=request_id,
            sequences=sequences,
            arrival_ns=time.monotonic_ns(),
            choices_per_prompt=n,
        )
        self.loop.submit(request)
        return request

    def reason(self, sequence: Sequence) -> str | None:
        """How the sequence ended, once it has."""
        reasons = [o.finish_reason for o in self.outputs if o.sequence_id == sequence.sequence_id]
        return reasons[-1] if reasons else None

    def tokens(self, sequence: Sequence) -> list[int]:
        mine = [o.token for o in self.outputs if o.sequence_id == sequence.sequence_id]
        return [token.token_id for token in mine if token is not None]

    def all_events(self) -> list[EngineEvent]:
        events: list[EngineEvent] = []
        while (taken := self.events.take()) is not None:
            events += taken[0].events
        return events


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)


@pytest.fixture
def running() -> Iterator[Running]:
    engine = Running()
    engine.loop.start()
    yield engine
    engine.runner.open.set()
    engine.loop.shutdown(0)


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
    with caplog.at_level(logging.CRITICAL, logger="engine.step_loop"):
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
    with caplog.at_level(logging.CRITICAL, logger="engine.step_loop"):
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
    """What a step holds while it runs."""


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
    with caplog.at_level(logging.CRITICAL, logger="engine.step_loop"):
        request = running.submit([1] * 8, 2)
        wait_for(lambda: running.reason(request))
    running.loop.shutdown(0)
    assert runner.freed
    assert all(runner.freed)


def test_a_request_that_no_memory_is_enough_for_ends_alone(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL, logger="engine.step_loop"):
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
