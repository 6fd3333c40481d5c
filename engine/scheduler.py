"""Continuous batching: which tokens are computed in the next step, who waits, who is preempted.

Each step serves the running requests first, best rank first, then admits from the waiting queue.
A running request that gets no slot costs the worst-ranked one its blocks; that one waits again and
recomputes.
"""

import time
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

from engine.config import SchedulerConfig
from engine.kv_manager import KVManager
from engine.request import Request, RequestState, ScheduledSequence
from engine.waiting_queue import WaitingQueue, rank
from kvscope_events.bus import Bus
from kvscope_events.events import (
    FinishReason,
    FirstToken,
    PreemptionCause,
    RequestArrived,
    RequestFinished,
    RequestPreempted,
    RequestResumed,
    RequestScheduled,
)

RECOVERY_STEPS = 64
"""Steps that must succeed before a budget cut by out-of-memory errors is doubled again."""


@dataclass(slots=True)
class StepPlan:
    """What one step computes; empty when nothing can run."""

    rows: list[ScheduledSequence]
    prefill_tokens: int
    decode_tokens: int

    @property
    def num_tokens(self) -> int:
        return self.prefill_tokens + self.decode_tokens


class Scheduler:
    """Owns the waiting queue and the running list. One thread."""

    def __init__(
        self, config: SchedulerConfig, kv: KVManager, bus: Bus, eos_token_ids: frozenset[int]
    ) -> None:
        self._config = config
        self._kv = kv
        self._emit = bus.emit
        self._eos_token_ids = eos_token_ids
        self._waiting = WaitingQueue()
        self._running: list[Request] = []  # sorted by rank
        self._budget = config.max_num_batched_tokens  # tokens in one step; less after an error
        self._steps_since_cut = 0

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> Sequence[Request]:
        """Best rank first; valid until the next call that changes something."""
        return self._running

    def unfilled_slots(self) -> int:
        """Token slots in blocks of running requests that hold nothing yet."""
        return sum(map(self._kv.unfilled_slots, self._running))

    def add(self, request: Request) -> None:
        """Queue a validated request: prompt and output fit max_model_len and the pool."""
        self._waiting.push(request)
        self._emit(
            RequestArrived(
                request.request_id,
                request.prompt_length,
                request.sampling.max_tokens,
                request.tenant,
                request.trace_id,
            )
        )

    def schedule(self) -> StepPlan:
        """Choose the next step's rows; every running request gets at least one token.

        Unless an out-of-memory error has cut the budget: then the worst-ranked ones skip a step.
        """
        plan = StepPlan([], 0, 0)
        preempted = self._schedule_running(plan)
        if not preempted:  # what was just freed belongs to those that still run
            self._admit_waiting(plan)
        return plan

    def update(self, plan: StepPlan, tokens: Sequence[int | None]) -> list[Request]:
        """Take the step's sampled tokens, one per row or None; returns the requests that ended."""
        now = time.monotonic_ns()
        self._recover()
        finished = []
        for row, token in zip(plan.rows, tokens, strict=True):
            request = row.request
            request.num_computed_tokens = row.start + row.count
            self._kv.commit(request)
            if token is None:
                continue
            request.tokens.append(token)
            request.last_token_ns = now
            if request.first_token_ns is None:
                request.first_token_ns = now
                self._emit(FirstToken(request.request_id, now - request.arrival_ns))
            reason = self._stop_reason(request, token)
            if reason is not None:
                self.finish(request, reason)
                finished.append(request)
        return finished

    def shrink(self, plan: StepPlan) -> int | None:
        """After a step ran out of memory: preempt the worst-ranked request, halve the budget.

        Returns the tokens that the next step may compute, or None if it cannot be made smaller.
        The plan's requests are as they were before it.
        """
        if len(self._running) > 1:
            self._preempt(self._running[-1], "out_of_memory")
        elif plan.num_tokens == 1 or not self._config.enable_chunked_prefill:
            return None
        self._budget = max(1, plan.num_tokens // 2)
        self._steps_since_cut = 0
        return self._budget

    def finish(self, request: Request, reason: FinishReason) -> None:
        """End a waiting or running request: its blocks are free at once."""
        was_waiting = request.state is RequestState.WAITING
        request.state = RequestState.FINISHED
        request.finish_reason = reason
        if was_waiting:
            self._waiting.forget(request)
        else:
            self._running.remove(request)
            self._kv.release(request, "finished" if reason in ("stop", "length") else "aborted")
        self._emit(_finished_event(request, reason))

    def _schedule_running(self, plan: StepPlan) -> bool:
        """Rows for running requests, preempting from the end while the pool is short."""
        budget = self._budget
        preempted = False
        position = 0
        while position < len(self._running) and budget > 0:
            request = self._running[position]
            while not self._kv.grow(request):
                victim = self._running[-1]
                self._preempt(victim, "out_of_blocks")
                preempted = True
                if victim is request:
                    break
            else:
                # One token is kept back for each one behind: a long prefill starves no decode.
                behind = len(self._running) - position - 1
                owed = len(request.tokens) - request.num_computed_tokens
                count = min(owed, max(1, budget - behind))
                budget -= count
                _add_row(plan, request, count, owed)
                position += 1
        return preempted

    def _admit_waiting(self, plan: StepPlan) -> None:
        budget = self._budget - plan.num_tokens
        while budget > 0 and len(self._running) < self._config.max_num_seqs:
            request = self._waiting.peek()
            if request is None:
                return
            prefix = self._kv.find_prefix(request)
            if not self._kv.can_admit(request, prefix):
                return  # no overtaking: a large request would starve
            owed = len(request.tokens) - len(prefix) * self._kv.block_size
            if owed > budget and not self._config.enable_chunked_prefill and self._running:
                return  # alone it may run even over a budget that was cut
            self._waiting.pop()
            self._admit(request, prefix)
            count = min(owed, budget) if self._config.enable_chunked_prefill else owed
            budget -= count
            _add_row(plan, request, count, owed)

    def _recover(self) -> None:
        """Count a step that succeeded towards the full budget."""
        if self._budget < self._config.max_num_batched_tokens:
            self._steps_since_cut += 1
            if self._steps_since_cut >= RECOVERY_STEPS:
                self._budget = min(2 * self._budget, self._config.max_num_batched_tokens)
                self._steps_since_cut = 0

    def _admit(self, request: Request, prefix: list[int]) -> None:
        now = time.monotonic_ns()
        request.state = RequestState.RUNNING
        request.admitted_ns = now
        self._kv.admit(request, prefix)
        insort(self._running, request, key=rank)
        found = request.num_computed_tokens
        if request.preempted_ns is None:
            request.first_scheduled_ns = now
            request.computed_prompt_tokens = request.prompt_length - found
            self._emit(RequestScheduled(request.request_id, now - request.arrival_ns, found))
        else:
            found = min(found, request.discarded_tokens)
            recompute = request.discarded_tokens - found
            stalled = now - request.preempted_ns
            self._emit(RequestResumed(request.request_id, recompute, found, stalled))

    def _preempt(self, request: Request, cause: PreemptionCause) -> None:
        now = time.monotonic_ns()
        assert request.admitted_ns is not None
        self._running.remove(request)
        blocks, discarded = len(request.block_table), request.num_computed_tokens
        age = now - request.admitted_ns
        self._kv.release(request, "preempted")
        request.state = RequestState.WAITING
        request.num_preemptions += 1
        request.preempted_ns = now
        request.discarded_tokens = discarded
        self._waiting.push(request)
        self._emit(RequestPreempted(request.request_id, "recompute", cause, discarded, blocks, age))

    def _stop_reason(self, request: Request, token: int) -> FinishReason | None:
        sampling = request.sampling
        if token in sampling.stop_token_ids:
            return "stop"
        if token in self._eos_token_ids and not sampling.ignore_eos:
            return "stop"
        if request.num_output_tokens >= sampling.max_tokens:
            return "length"
        return None


def _add_row(plan: StepPlan, request: Request, count: int, owed: int) -> None:
    plan.rows.append(ScheduledSequence(request, request.num_computed_tokens, count))
    if owed > 1:
        plan.prefill_tokens += count
    else:
        plan.decode_tokens += count


def _finished_event(request: Request, reason: FinishReason) -> RequestFinished:
    now = time.monotonic_ns()
    return RequestFinished(
        request=request.request_id,
        reason=reason,
        prompt_tokens=request.prompt_length,
        output_tokens=request.num_output_tokens,
        max_tokens=request.sampling.max_tokens,
        preemptions=request.num_preemptions,
        elapsed_ns=now - request.arrival_ns,
        queue_ns=_between(request.arrival_ns, request.first_scheduled_ns),
        prefill_ns=_between(request.first_scheduled_ns, request.first_token_ns),
        decode_ns=_between(request.first_token_ns, request.last_token_ns),
        computed_tokens=request.computed_prompt_tokens,
    )


def _between(start_ns: int | None, end_ns: int | None) -> int | None:
    return None if start_ns is None or end_ns is None else end_ns - start_ns
