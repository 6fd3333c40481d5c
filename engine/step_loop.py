"""The engine's own thread: take commands, schedule, run the model, hand out tokens, flush the bus.

Other threads only ever put commands and read figures; nothing here waits for a client, a subscriber
or a scrape. An exception in a step ends the loop: every request gets an error, `health` says why.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from engine.block_pool import BlockPool
from engine.oom import DeviceOutOfMemoryError, OutOfMemoryLog
from engine.request import Request, RequestState, SampledToken, ScheduledSequence
from engine.scheduler import Scheduler, StepPlan
from kvscope_events.bus import Bus
from kvscope_events.events import (
    DeviceMemorySampled,
    DeviceOutOfMemory,
    FinishReason,
    RejectReason,
    RequestRejected,
    StepCompleted,
)

IDLE_TICK_SECONDS = 0.5
"""How often an idle loop looks up: late subscribers get their snapshot within this time."""
STOP_SECONDS = 10.0
"""How long a stop waits for the step under way."""

MEMORY_SAMPLE_NS = 1_000_000_000
"""Between two samples of the device's memory."""

logger = logging.getLogger(__name__)


class Runner(Protocol):
    """What computes a step."""

    def execute(self, rows: Sequence[ScheduledSequence]) -> Sequence[SampledToken | None]:
        """Compute KV for every row; one result a row, None where the row does not sample.

        Raises DeviceOutOfMemoryError if the step is too large for the memory there is.
        """
        ...

    def drop_caches(self) -> None:
        """Give back memory that is held but not used."""
        ...

    def sample_memory(self) -> DeviceMemorySampled:
        """Where the device's memory is now."""
        ...


class StepOutput(NamedTuple):
    """News about one request after a step; `finish_reason` marks the last."""

    request_id: int
    token: SampledToken | None
    finish_reason: FinishReason | None


Sink = Callable[[list[StepOutput]], None]
"""Called on the engine's thread after each step; must not block or raise."""


class QueueFullError(Exception):
    """The waiting queue is at its limit."""

    def __init__(self, waiting: int, limit: int) -> None:
        super().__init__(f"{waiting} requests wait already, the limit is {limit}")


class EngineUnavailableError(Exception):
    """The engine takes no requests: it failed, or it is shutting down."""


@dataclass(frozen=True, slots=True)
class Health:
    """Whether the engine makes progress, and if not, why."""

    ok: bool
    reason: str = ""


class StepLoop:
    """Runs the scheduler and the model; the only code that touches either after `start`."""

    def __init__(
        self,
        scheduler: Scheduler,
        pool: BlockPool,
        runner: Runner,
        bus: Bus,
        sink: Sink,
        *,
        max_num_queued_reqs: int,
        stall_seconds: float = 60.0,
    ) -> None:
        self._scheduler = scheduler
        self._pool = pool
        self._runner = runner
        self._bus = bus
        self._sink = sink
        self._max_num_queued_reqs = max_num_queued_reqs
        self._stall_seconds = stall_seconds
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._requests: dict[int, Request] = {}  # those that wait or run
        self._num_submitted = 0  # written by whoever submits
        self._num_ended = 0  # written by the engine's thread
        self._outputs: list[StepOutput] = []
        self._progress_ns = time.monotonic_ns()
        self._memory_due_ns = 0
        self._oom_log = OutOfMemoryLog()
        self._closing = False
        self._stop = False
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._run, name="engine-step-loop", daemon=True)

    @property
    def num_in_flight(self) -> int:
        """Requests submitted and not ended, those the loop has not picked up yet included."""
        return self._num_submitted - self._num_ended

    def start(self) -> None:
        self._bus.flush()  # the pool exists: a scrape sees it from the start
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Queue a request. Raises QueueFullError or EngineUnavailableError, and counts it."""
        if self._failure is not None:
            self.reject("engine_dead")
        self._refuse_if_failed()
        if self._closing:
            self.reject("draining")
            raise EngineUnavailableError("the server is shutting down")
        waiting = self._scheduler.num_waiting + self._commands.qsize()
        if waiting >= self._max_num_queued_reqs:
            self.reject("queue_full")
            raise QueueFullError(waiting, self._max_num_queued_reqs)
        if not self.num_in_flight:
            self._progress_ns = time.monotonic_ns()  # idle until now: the stall clock starts here
        self._num_submitted += 1
        self._commands.put(partial(self._add, request))
        self._refuse_if_failed()  # it failed just now and may have looked at commands before

    def abort(self, request_id: int, reason: FinishReason = "abort") -> None:
        """End a request before the next step; one that is gone already is left alone."""
        self._commands.put(partial(self._abort, request_id, reason))

    def reset_prefix_cache(self) -> None:
        """Forget all cached blocks before the next step. Raises EngineUnavailableError."""
        self._refuse_if_failed()
        self._commands.put(self._reset)

    def reject(self, reason: RejectReason) -> None:
        """Count a request that was refused before it had an id."""
        self._bus.emit(RequestRejected(reason))
        if not self._thread.is_alive():
            self._bus.flush()  # nobody else will

    def shutdown(self, drain_seconds: float) -> None:
        """Take no more, finish what is there for at most `drain_seconds`, abort the rest, stop.

        From any thread, also while another call still waits. A step that hangs is left to itself.
        """
        self._closing = True
        deadline = time.monotonic() + drain_seconds
        while self.num_in_flight and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.02)
        self._commands.put(self._abort_all)
        self._thread.join(STOP_SECONDS)
        if self._thread.is_alive():
            logger.error("the step under way has not ended in %.0f s: left behind", STOP_SECONDS)

    def health(self) -> Health:
        """Unhealthy when the loop has died, or has work and has made no step for too long."""
        if self._failure is not None:
            return Health(False, f"the engine failed: {self._failure}")
        if not self._thread.is_alive():
            return Health(False, "the engine is not running")
        idle_seconds = (time.monotonic_ns() - self._progress_ns) / 1e9
        if self.num_in_flight and idle_seconds > self._stall_seconds:
            return Health(
                False, f"{self.num_in_flight} requests and no step for {idle_seconds:.0f} s"
            )
        return Health(True)

    def _refuse_if_failed(self) -> None:
        if self._failure is not None:
            raise EngineUnavailableError(f"the engine failed: {self._failure}")

    def _run(self) -> None:
        try:
            while not self._stop:
                was_idle = not self._requests
                self._take_commands(wait=was_idle)
                if was_idle and self._requests:
                    self._bus.flush()  # should the first step hang, it is seen that there is work
                if self._requests and not self._step():
                    self._take_commands(wait=True)
                if time.monotonic_ns() >= self._memory_due_ns:
                    self._sample_memory()
                self._bus.flush()
                self._deliver()
        except Exception as error:
            logger.exception("the engine failed; every request ends with an error")
            self._failure = f"{type(error).__name__}: {error}"
            try:
                self._end_all("error")
            finally:
                self._bus.flush()

    def _take_commands(self, *, wait: bool) -> None:
        try:
            command = self._commands.get(timeout=IDLE_TICK_SECONDS) if wait else None
            while True:
                if command is not None:
                    command()
                command = self._commands.get_nowait()
        except queue.Empty:
            return

    def _step(self) -> bool:
        """One step; False if nothing could run."""
        start = time.monotonic_ns()
        plan = self._scheduler.schedule()
        if not plan.rows:
            return False
        wanted: DeviceOutOfMemoryError | None = None
        try:
            sampled = self._runner.execute(plan.rows)
        except DeviceOutOfMemoryError as error:
            # A copy: the frames of the one that was raised keep the step's tensors alive.
            wanted = DeviceOutOfMemoryError(error.wanted_bytes)
        if wanted is not None:
            self._survive(plan, wanted)
            return True
        finished = self._scheduler.update(
            plan, [None if token is None else token.token_id for token in sampled]
        )
        for request in finished:
            del self._requests[request.request_id]
        self._num_ended += len(finished)
        emitted = []
        for row, token in zip(plan.rows, sampled, strict=True):
            if token is not None:
                request = row.request
                emitted.append(request.request_id)
                output = StepOutput(request.request_id, token, request.finish_reason)
                self._outputs.append(output)
        self._progress_ns = time.monotonic_ns()
        self._bus.emit(self._completed(plan, self._progress_ns - start, emitted))
        return True

    def _survive(self, plan: StepPlan, error: DeviceOutOfMemoryError) -> None:
        """Make room and make the next step smaller; where that is impossible, end its request."""
        self._runner.drop_caches()
        retry_tokens = self._scheduler.shrink(plan)
        if retry_tokens is None:
            for row in plan.rows:
                self._abort(row.request.request_id, "error")
        self._bus.emit(
            DeviceOutOfMemory(
                error.wanted_bytes,
                "gave_up" if retry_tokens is None else "retried",
                plan.num_tokens,
                retry_tokens or 0,
            )
        )
        self._oom_log.say(error, retry_tokens)
        self._sample_memory()
        self._progress_ns = time.monotonic_ns()

    def _sample_memory(self) -> None:
        self._bus.emit(self._runner.sample_memory())
        self._memory_due_ns = time.monotonic_ns() + MEMORY_SAMPLE_NS

    def _completed(self, plan: StepPlan, duration_ns: int, emitted: list[int]) -> StepCompleted:
        pool, scheduler = self._pool, self._scheduler
        return StepCompleted(
            duration_ns=duration_ns,
            running=scheduler.num_running,
            waiting=scheduler.num_waiting,
            swapped=0,
            prefill_tokens=plan.prefill_tokens,
            decode_tokens=plan.decode_tokens,
            slots_filled=pool.num_active * pool.block_size - scheduler.unfilled_slots(),
            active_blocks=pool.num_active,
            cached_blocks=pool.num_cached,
            free_blocks=pool.num_free,
            emitted=emitted,
        )

    def _deliver(self) -> None:
        if self._outputs:
            outputs, self._outputs = self._outputs, []
            self._sink(outputs)

    def _add(self, request: Request) -> None:
        self._requests[request.request_id] = request
        self._scheduler.add(request)

    def _abort(self, request_id: int, reason: FinishReason) -> None:
        request = self._requests.pop(request_id, None)
        if request is None:
            return
        self._scheduler.finish(request, reason)
        self._num_ended += 1
        self._outputs.append(StepOutput(request_id, None, reason))

    def _reset(self) -> None:
        self._pool.reset()

    def _abort_all(self) -> None:
        self._end_all("abort")
        self._stop = True

    def _end_all(self, reason: FinishReason) -> None:
        while not self._commands.empty():  # requests that were still to be added end as well
            self._commands.get_nowait()()
        requests = list(self._requests.values())
        self._requests.clear()
        self._num_ended += len(requests)
        self._outputs += [StepOutput(request.request_id, None, reason) for request in requests]
        self._deliver()  # first of all: after a failure the accounting below may fail as well
        for request in requests:
            if request.state is not RequestState.FINISHED:
                self._scheduler.finish(request, reason)
