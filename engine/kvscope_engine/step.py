"""One step: schedule, execute, take the tokens.

The engine survives a step that runs out of device memory, and only a request that raises ends.

Emits the step's StepCompleted or DeviceOutOfMemory; the caller flushes the bus.
"""

import logging
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from kvscope_engine.block_pool import BlockPool
from kvscope_engine.out_of_memory import DeviceOutOfMemoryError, OutOfMemoryLog
from kvscope_engine.request import SequenceState
from kvscope_engine.runner import Runner
from kvscope_engine.scheduler import Scheduler
from kvscope_engine.step_plan import SampledToken, ScheduledSequence, StepPlan
from kvscope_events.bus import Bus
from kvscope_events.events import DeviceOutOfMemory, StepCompleted, StepScheduled
from kvscope_events.throttle import ThrottledLog
from kvscope_events.vocabulary import FinishReason

_Rows = list[ScheduledSequence]

_log = ThrottledLog(logging.getLogger(__name__))

MEMORY_SAMPLE_NS = 1_000_000_000
"""Seconds between two samples of the device's memory."""


class StepOutput(NamedTuple):
    """News about one sequence after a step; `finish_reason` marks the last."""

    sequence_id: int
    token: SampledToken | None
    finish_reason: FinishReason | None


class Step:
    """Runs steps over one scheduler, pool and runner. One thread."""

    def __init__(self, scheduler: Scheduler, pool: BlockPool, runner: Runner, bus: Bus) -> None:
        self.scheduler = scheduler
        self.pool = pool
        self.runner = runner
        self.largest_step = 0
        """Tokens of the largest step that was completed."""
        self._emit = bus.emit
        self._memory_due_ns = 0
        self._oom_log = OutOfMemoryLog()

    def run(self) -> list[StepOutput] | None:
        """One step's news; None if nothing could run."""
        start_ns = time.monotonic_ns()
        plan = planned = self.scheduler.schedule()
        if not plan.rows:
            return None
        failure: DeviceOutOfMemoryError | None = None
        try:
            executed = execute(self.runner, plan)
        except DeviceOutOfMemoryError as error:
            # A copy: the frames of the raised one keep the step's tensors alive.
            failure = DeviceOutOfMemoryError(error.wanted_bytes)
        if failure is not None:
            return self._survive(plan, failure)
        outputs = self._end_calls(executed.culprits)
        plan, sampled = executed.plan, executed.tokens
        plan.admission_stop = planned.admission_stop
        if not plan.rows:
            return outputs
        if plan.chunks:
            self._emit(StepScheduled([*plan.chunks], [*plan.chunks.values()], planned.room))
        self.scheduler.update(
            plan, [None if token is None else token.token_id for token in sampled]
        )
        emitted: list[int] = []
        first_tokens: list[int] = []
        for row, token in zip(plan.rows, sampled, strict=True):
            sequence = row.sequence
            reason = sequence.finish_reason
            if token is not None:
                emitted.append(sequence.sequence_id)
                if len(sequence.tokens) == sequence.prompt_length + 1:
                    first_tokens.append(sequence.sequence_id)
            if token is not None or reason is not None:
                outputs.append(StepOutput(sequence.sequence_id, token, reason))
        completed = self._completed(plan, start_ns, emitted, first_tokens)
        self._emit(completed)
        if self.scheduler.swap is not None:
            self.scheduler.swap.stepped(plan.num_tokens, plan.prefill_tokens, completed.duration_ns)
        return outputs

    def sample_memory_if_due(self) -> None:
        """Emit a sample of the device's memory if a second has passed since the last one."""
        if time.monotonic_ns() >= self._memory_due_ns:
            self._sample_memory()

    def _sample_memory(self) -> None:
        self._emit(self.runner.sample_memory())
        self._memory_due_ns = time.monotonic_ns() + MEMORY_SAMPLE_NS

    def _end_calls(self, request_ids: list[int]) -> list[StepOutput]:
        outputs: list[StepOutput] = []
        for request_id in request_ids:
            request = self.scheduler.requests.get(request_id)
            assert request is not None, "it had a row in this step"
            for sequence in self.scheduler.finish_request(request, "error"):
                outputs.append(StepOutput(sequence.sequence_id, None, "error"))
        return outputs

    def _survive(self, plan: StepPlan, error: DeviceOutOfMemoryError) -> list[StepOutput]:
        """Make room and the next step smaller; if that is impossible, end its sequence."""
        self.runner.drop_caches()
        retry_tokens = self.scheduler.shrink(plan)
        outputs: list[StepOutput] = []
        if retry_tokens is None:
            for sequence in (row.sequence for row in plan.rows):
                if sequence.state is not SequenceState.FINISHED:
                    self.scheduler.finish(sequence, "error")
                    outputs.append(StepOutput(sequence.sequence_id, None, "error"))
        self._emit(
            DeviceOutOfMemory(
                error.wanted_bytes,
                "gave_up" if retry_tokens is None else "retried",
                plan.num_tokens,
                retry_tokens or 0,
            )
        )
        self._oom_log.log(error, retry_tokens)
        self._sample_memory()
        return outputs

    def _completed(
        self, plan: StepPlan, start_ns: int, emitted: list[int], first_tokens: list[int]
    ) -> StepCompleted:
        pool, scheduler = self.pool, self.scheduler
        self.largest_step = max(self.largest_step, plan.num_tokens)
        return StepCompleted(
            duration_ns=time.monotonic_ns() - start_ns,
            running=scheduler.num_running,
            waiting=scheduler.num_waiting,
            swapped=scheduler.num_swapped,
            prefill_tokens=plan.prefill_tokens,
            decode_tokens=plan.decode_tokens,
            slots_filled=pool.num_active * pool.block_size - scheduler.num_unfilled_slots,
            active_blocks=pool.num_active,
            cached_blocks=pool.num_cached,
            free_blocks=pool.num_free,
            emitted=emitted,
            first_tokens=first_tokens,
            requests_running=scheduler.requests.num_running,
            requests_waiting=scheduler.requests.num_waiting,
            requests_swapped=scheduler.num_requests_swapped,
            admission_stop=plan.admission_stop,
        )


@dataclass(slots=True)
class _Executed:
    """The result of a step."""

    plan: StepPlan
    """The rows that were computed, without those of the culprits."""
    tokens: list[SampledToken | None]
    """One for each of those rows."""
    culprits: list[int] = field(default_factory=list)
    """Calls that raise by themselves."""


def execute(runner: Runner, plan: StepPlan) -> _Executed:
    """Execute a plan so that only a call that raises ends: the others' tokens are unaffected.

    A step that raised is executed again in halves, down to the calls that raise by themselves:
    about 2 log2(calls) extra steps for each. This is safe: nothing is committed before the whole
    step is through, no call's rows read what another's write, and a row that is computed again
    writes the same KV into the same slots.

    Raises DeviceOutOfMemoryError; and the runner's own error if not even its self-test works: then
    no request is at fault.
    """
    try:
        return _Executed(plan, runner.execute(plan))
    except DeviceOutOfMemoryError:
        raise
    except Exception as error:
        traceback.clear_frames(error.__traceback__)  # they hold the step's tensors
        if not _works(runner):
            raise
        failure = error
    separation = _Separation(runner)
    separation.split(_by_call(plan.rows), failure)
    return separation.result()


def _works(runner: Runner) -> bool:
    """Whether the device and the model work at all; lack of memory proves nothing."""
    try:
        with suppress(DeviceOutOfMemoryError):
            runner.self_test()
    except Exception as error:
        _log.log(logging.ERROR, "self-test", "the runner's self-test failed", error)
        return False
    return True


def _by_call(rows: list[ScheduledSequence]) -> list[_Rows]:
    """The rows of each call, in the order of the step."""
    calls: dict[int, _Rows] = {}
    for row in rows:
        calls.setdefault(row.sequence.request_id, []).append(row)
    return list(calls.values())


class _Separation:
    """Computes calls of which some raise."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._rows: _Rows = []
        self._tokens: list[SampledToken | None] = []
        self._culprits: list[int] = []

    def split(self, calls: list[_Rows], error: Exception) -> None:
        """Separate calls that raised together. Raises DeviceOutOfMemoryError."""
        if len(calls) == 1:
            self._convict(calls[0][0].sequence.request_id, error)
            return
        middle = len(calls) // 2
        self._try(calls[:middle])
        self._try(calls[middle:])

    def result(self) -> _Executed:
        if not self._culprits:
            _log.warning("none", "a step raised, but none of its calls does by itself: all go on")
        return _Executed(StepPlan.of(self._rows), self._tokens, self._culprits)

    def _try(self, calls: list[_Rows]) -> None:
        rows = list(chain.from_iterable(calls))
        try:
            tokens = self._runner.execute(StepPlan.of(rows))
        except DeviceOutOfMemoryError:
            raise
        except Exception as error:
            traceback.clear_frames(error.__traceback__)
            failure = error
        else:
            self._rows += rows
            self._tokens += tokens
            return
        self.split(calls, failure)

    def _convict(self, request_id: int, error: Exception) -> None:
        self._culprits.append(request_id)
        _log.log(
            logging.ERROR,
            type(error).__name__,
            f"request {request_id} raises in a step: it ends with an error, others go on",
            error,
        )
