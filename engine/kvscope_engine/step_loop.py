"""The engine's own thread: take commands, run steps, hand out tokens, flush the bus; its health.

Other threads only put commands and read figures; nothing here waits for a client, a subscriber or a
scrape. An exception that is not due to a single call ends the loop: every call gets an error,
`health` says why, and `on_failure` is called.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from kvscope_engine.config import DEFAULT_STALL_SECONDS
from kvscope_engine.introduction import Introduction
from kvscope_engine.request import Request, Sequence, SequenceState
from kvscope_engine.step import Step, StepOutput
from kvscope_events.bus import Bus
from kvscope_events.events import RequestRejected
from kvscope_events.throttle import ThrottledLog
from kvscope_events.vocabulary import FinishReason, RejectReason

IDLE_TICK_SECONDS = 0.5
"""Period of an idle loop: late subscribers get their snapshot within this time."""
STOP_SECONDS = 10.0
"""Default time that a stop waits for the current step."""

logger = logging.getLogger(__name__)
_log = ThrottledLog(logger)

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
        step: Step,
        bus: Bus,
        sink: Sink,
        introduction: Introduction,
        *,
        max_num_queued_reqs: int,
        stall_seconds: float = DEFAULT_STALL_SECONDS,
    ) -> None:
        self._step = step
        self._scheduler = step.scheduler
        self._pool = step.pool
        self._bus = bus
        self._sink = sink
        self._introduction = introduction
        self._max_num_queued_reqs = max_num_queued_reqs
        self._stall_seconds = stall_seconds
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._num_submitted = 0  # calls; written by the submitting thread
        self._num_not_added = 0  # those that raised; written by the loop
        self._on_failure: list[Callable[[], None]] = []
        self._outputs: list[StepOutput] = []
        self._progress_ns = time.monotonic_ns()
        self._closing = False
        self._stop = False
        self._failure: str | None = None
        self._last_flushes = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="engine-step-loop", daemon=True)

    @property
    def num_in_flight(self) -> int:
        """Calls submitted and not ended, including those the loop has not picked up yet."""
        ended = self._scheduler.requests.num_ended + self._num_not_added
        return self._num_submitted - ended

    def on_failure(self, told: Callable[[], None]) -> None:
        """Set a function to call on the engine's thread once it has failed and ended its calls."""
        self._on_failure.append(told)

    def start(self) -> None:
        self._bus.flush()  # the pool exists: a scrape sees it from the start
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Queue a call with all its sequences, or none of them.

        Raises QueueFullError or EngineUnavailableError, and counts the call as rejected.
        """
        if self._failure is not None:
            self.reject("engine_dead")
        self._refuse_if_failed()
        if self._closing:
            self.reject("draining")
            raise EngineUnavailableError("the server is shutting down")
        waiting = self._scheduler.requests.num_waiting + self._commands.qsize()
        if waiting >= self._max_num_queued_reqs:
            self.reject("queue_full")
            raise QueueFullError(waiting, self._max_num_queued_reqs)
        if not self.num_in_flight:
            self._progress_ns = time.monotonic_ns()  # idle until now: the stall clock starts here
        self._num_submitted += 1
        self._commands.put(partial(self._add, request))
        self._refuse_if_failed()  # since the check above the loop may have read its last command

    def abort(self, request_id: int, reason: FinishReason = "abort") -> None:
        """End the rest of a call before the next step; no effect if it has ended."""
        self._commands.put(partial(self._abort, request_id, reason))

    def abort_sequence(self, sequence: Sequence, reason: FinishReason = "abort") -> None:
        """End one sequence of a submitted call before the next step; its siblings continue."""
        self._commands.put(partial(self._abort_sequence, sequence, reason))

    def reset_prefix_cache(self) -> None:
        """Forget all cached blocks before the next step. Raises EngineUnavailableError."""
        self._refuse_if_failed()
        self._commands.put(self._reset)

    def reject(self, reason: RejectReason) -> None:
        """Count a call that was refused before it had a number."""
        self._bus.emit(RequestRejected(reason))
        if self._failure is not None or not self._thread.is_alive():
            self._flush_after_failure()

    def shutdown(self, drain_seconds: float, *, stop_seconds: float = STOP_SECONDS) -> bool:
        """Take no more calls, finish present ones for at most `drain_seconds`, abort the rest,
        stop.

        Returns whether the thread has ended: a step that hangs is abandoned after `stop_seconds`.
        Callable from any thread, even while another shutdown waits.
        """
        self._closing = True
        deadline = time.monotonic() + drain_seconds
        while (
            self.num_in_flight
            and self._failure is None
            and self._thread.is_alive()
            and time.monotonic() < deadline
        ):
            time.sleep(0.02)
        self._commands.put(self._abort_all)
        self._thread.join(stop_seconds)
        if self._thread.is_alive():
            logger.error("the step under way has not ended in %.0f s: left behind", stop_seconds)
            return False
        return True

    def health(self) -> Health:
        """Unhealthy when the loop has died, or has work but has not made a step for too long."""
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
            requests = self._scheduler.requests
            while not self._stop:
                was_idle = not len(requests)
                self._take_commands(wait=was_idle)
                if was_idle and len(requests):
                    self._bus.flush()  # should the first step hang, the work is visible
                if len(requests):
                    self._run_step()
                self._step.sample_memory_if_due()
                self._bus.flush()
                self._deliver()
        except Exception as error:
            logger.exception("the engine failed; every request ends with an error")
            self._failure = f"{type(error).__name__}: {error}"
            try:
                self._end_all("error")
            finally:
                self._introduction.announce(ready=False)
                self._flush_after_failure()
                for told in self._on_failure:
                    told()
            while not self._closing:  # a joining thread still learns which one this was
                time.sleep(IDLE_TICK_SECONDS)
                self._flush_after_failure()

    def _flush_after_failure(self) -> None:
        with self._last_flushes:  # by any thread: a bus allows one at a time
            self._bus.flush()

    def _run_step(self) -> None:
        outputs = self._step.run()
        if outputs is None:
            self._take_commands(wait=True)
            return
        self._outputs += outputs
        self._progress_ns = time.monotonic_ns()

    def _take_commands(self, *, wait: bool) -> None:
        try:
            command = self._commands.get(timeout=IDLE_TICK_SECONDS) if wait else None
            while True:
                if command is not None:
                    command()
                command = self._commands.get_nowait()
        except queue.Empty:
            return

    def _deliver(self) -> None:
        if self._outputs:
            outputs, self._outputs = self._outputs, []
            self._sink(outputs)

    def _add(self, request: Request) -> None:
        try:
            self._scheduler.add(request)
        except Exception as error:
            message = f"request {request.request_id} cannot be added: it ends with an error"
            _log.log(logging.ERROR, "add", message, error)
            self._num_not_added += 1
            self._bus.emit(RequestRejected("invalid"))
            for sequence in request.sequences:
                self._outputs.append(StepOutput(sequence.sequence_id, None, "error"))

    def _abort(self, request_id: int, reason: FinishReason) -> None:
        request = self._scheduler.requests.get(request_id)
        if request is not None:
            for sequence in self._scheduler.finish_request(request, reason):
                self._outputs.append(StepOutput(sequence.sequence_id, None, reason))

    def _abort_sequence(self, sequence: Sequence, reason: FinishReason) -> None:
        if sequence.state is not SequenceState.FINISHED:
            self._scheduler.finish(sequence, reason)
            self._outputs.append(StepOutput(sequence.sequence_id, None, reason))

    def _reset(self) -> None:
        self._pool.reset()

    def _abort_all(self) -> None:
        self._end_all("abort")
        self._stop = True

    def _end_all(self, reason: FinishReason) -> None:
        while not self._commands.empty():  # calls that are yet to be added end as well
            try:
                self._commands.get_nowait()()
            except Exception as error:  # after a failure of the accounting: the others continue
                _log.log(logging.ERROR, "command", "a command failed at the end", error)
        requests = self._scheduler.requests.requests
        self._outputs += [
            StepOutput(sequence.sequence_id, None, reason)
            for request in requests
            for sequence in request.sequences
            if sequence.state is not SequenceState.FINISHED
        ]
        self._deliver()  # first: after a failure the accounting below may fail as well
        for request in requests:
            self._scheduler.finish_request(request, reason)
