"""Continuous batching: chooses the tokens of the next step, and the sequences that wait or are
preempted.

Each step serves the running sequences first, best rank first, then admits from the waiting queue. A
running sequence that gets no slot costs the worst-ranked one its blocks; that one waits again and
recomputes, or has its KV copied to the host and back if there is a swap pool. Of several samples of
one prompt one computes it, and the others fork from it.
"""

import time
from bisect import insort

from kvscope_engine.config import SchedulerConfig
from kvscope_engine.kv_manager import KVManager
from kvscope_engine.request import Forks, Rank, Request, Sequence, SequenceState, WaitingQueue
from kvscope_engine.request_book import RequestBook
from kvscope_engine.step_budget import StepBudget
from kvscope_engine.step_plan import StepPlan
from kvscope_engine.swap.manager import Decision, SwapManager
from kvscope_events.bus import Bus
from kvscope_events.events import AllocationFailed, RequestPreempted
from kvscope_events.vocabulary import AdmissionStop, FinishReason, PreemptionCause

_RECOMPUTE = Decision("recompute", None)


def _rank_of(sequence: Sequence) -> Rank:
    return sequence.rank


class Scheduler:
    """Owns the waiting queue and the running list. One thread."""

    def __init__(
        self,
        config: SchedulerConfig,
        kv: KVManager,
        bus: Bus,
        eos_token_ids: frozenset[int],
        swap: SwapManager | None = None,
    ) -> None:
        """swap: keeps victims' KV on the host; None: all are recomputed."""
        self._config = config
        self._kv = kv
        self._emit = bus.emit
        self._eos_token_ids = eos_token_ids
        self._waiting = WaitingQueue()
        self._forks = Forks()
        self._running: list[Sequence] = []  # sorted by rank
        self._budget = StepBudget(config.max_num_batched_tokens)
        self.swap = swap
        self.requests = RequestBook(bus)
        """The calls that the sequences belong to."""

    @property
    def num_running(self) -> int:
        """Sequences."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Waiting sequences, including those swapped out, or waiting for another's prompt."""
        return len(self._waiting) + self._forks.num_waiting

    @property
    def num_swapped(self) -> int:
        """Sequences that are swapped out."""
        return 0 if self.swap is None else len(self.swap.sequences)

    @property
    def num_requests_swapped(self) -> int:
        """Calls without a running sequence of which at least one is swapped out."""
        if self.swap is None or not self.swap.sequences:
            return 0
        calls = {sequence.request_id for sequence in self.swap.sequences}
        return sum(not self.requests.is_running(call) for call in calls)

    @property
    def num_unfilled_slots(self) -> int:
        """Token slots of active blocks that hold nothing yet, each block once."""
        return self._kv.num_unfilled_slots

    @property
    def running(self) -> list[Sequence]:
        """Best rank first; for reading, until the next call that changes something."""
        return self._running

    def add(self, request: Request) -> None:
        """Queue a validated call: each prompt and output fits max_model_len and the pool."""
        self.requests.arrived(request)
        urgency = self._urgency(request)
        for sequence in request.sequences:
            sequence.rank = (urgency, sequence.sequence_id)
        for samples in request.samples:
            self._queue(samples)

    def schedule(self) -> StepPlan:
        """Choose the next step's rows; every running sequence gets at least one token.

        Unless an out-of-memory error has cut the budget: then the worst-ranked ones skip a step.
        """
        plan = StepPlan()
        preempted = self._schedule_running(plan)
        # Blocks just freed belong to those that still run.
        plan.admission_stop = "blocks" if preempted else self._admit_waiting(plan)
        plan.room = max(0, self._budget.current - plan.num_tokens)
        return plan

    def update(self, plan: StepPlan, tokens: list[int | None]) -> None:
        """Take the step's sampled tokens, one per row or None; ends the sequences that are done."""
        now = time.monotonic_ns()
        self._budget.succeeded(plan.num_tokens)
        for row, token in zip(plan.rows, tokens, strict=True):
            sequence = row.sequence
            self._kv.commit(sequence, row.start + row.count)
            if token is None:
                continue
            if sequence.forks:
                self._fork(sequence, plan.forks[sequence.sequence_id], now)
            sequence.tokens.append(token)
            sequence.last_token_ns = now
            if sequence.first_token_ns is None:
                self.requests.first_token(sequence, now)
            reason = self._stop_reason(sequence, token)
            if reason is not None:
                self.finish(sequence, reason)

    def shrink(self, plan: StepPlan) -> int | None:
        """After a step ran out of memory: preempt the worst-ranked sequence, halve the budget.

        Returns the tokens that the next step may compute, or None if it cannot be made smaller.
        The plan's sequences are as they were before it.
        """
        if len(self._running) > 1:
            self._preempt(self._running[-1], "out_of_memory")
        elif plan.num_tokens == 1 or not self._config.enable_chunked_prefill:
            return None
        return self._budget.cut(plan.num_tokens)

    def finish(self, sequence: Sequence, reason: FinishReason) -> None:
        """End a waiting or running sequence: its blocks are free at once."""
        was_running = sequence.state is SequenceState.RUNNING
        sequence.state = SequenceState.FINISHED
        sequence.finish_reason = reason
        if was_running:
            self._running.remove(sequence)
            self._kv.release(sequence, "finished" if reason in ("stop", "length") else "aborted")
        elif sequence.leader is not None:
            self._forks.leave(sequence)
        else:
            self._waiting.forget(sequence)
            if sequence.host_blocks:
                assert self.swap is not None
                self.swap.drop(sequence)
        if sequence.forks:
            self._queue(self._forks.disband(sequence))
        self.requests.finished(sequence, was_running=was_running)

    def finish_request(self, request: Request, reason: FinishReason) -> list[Sequence]:
        """End every sequence of a call that has not ended; returns those."""
        left = [s for s in request.sequences if s.state is not SequenceState.FINISHED]
        for sequence in left:
            self.finish(sequence, reason)
        return left

    def _schedule_running(self, plan: StepPlan) -> bool:
        """Rows for running sequences, preempting from the end while the pool is short."""
        budget = self._budget.current
        running, kv = self._running, self._kv
        preempted = False
        position = 0
        while position < len(running) and budget > 0:
            sequence = running[position]
            if kv.missing_blocks(sequence) > 0:
                preempted = self._make_room(sequence) or preempted
                if sequence.state is not SequenceState.RUNNING:
                    break  # it was itself the last one
                kv.grow(sequence)
            # One token is reserved for each one behind: a long prefill does not starve decodes.
            behind = len(running) - position - 1
            owed = len(sequence.tokens) - sequence.num_computed_tokens
            count = min(owed, max(1, budget - behind))
            budget -= count
            plan.add(sequence, count, owed)
            if sequence.forks:
                self._plan_forks(plan, sequence)
            position += 1
        return preempted

    def _make_room(self, sequence: Sequence) -> bool:
        """Preempt from the end until the sequence can grow, if need be itself; True: any was."""
        kv = self._kv
        preempted = False
        while sequence.state is SequenceState.RUNNING and not kv.can_grow(sequence):
            self._emit(
                AllocationFailed(
                    sequence.sequence_id, kv.missing_blocks(sequence), kv.num_available_blocks
                )
            )
            self._preempt(self._running[-1], "out_of_blocks")
            preempted = True
        return preempted

    def _admit_waiting(self, plan: StepPlan) -> AdmissionStop:
        """Admit from the queue while there is room; returns what ended that."""
        budget = self._budget.current - plan.num_tokens
        while (sequence := self._waiting.peek()) is not None:
            if len(self._running) + plan.num_forks >= self._config.max_num_seqs:
                return "sequences"
            if budget <= 0:
                return "tokens"
            prefix = self._kv.find_prefix(sequence)
            if not self._kv.can_admit(sequence, prefix):
                return "blocks"  # no overtaking: a large sequence would starve
            there = len(prefix) * self._kv.block_size
            if sequence.host_blocks:
                there = max(there, sequence.discarded_tokens)
            owed = len(sequence.tokens) - there
            if owed > budget and not self._config.enable_chunked_prefill and self._running:
                return "tokens"  # on its own it may run even over a reduced budget
            self._waiting.pop()
            self._admit(sequence, prefix)
            count = min(owed, budget) if self._config.enable_chunked_prefill else owed
            budget -= count
            plan.add(sequence, count, owed)
            if sequence.forks:
                self._plan_forks(plan, sequence)
        return "empty"

    def _queue(self, samples: list[Sequence]) -> None:
        """Let samples of one prompt wait: the first for its turn, the others for the first."""
        for sequence in [self._forks.gather(samples)] if self._kv.can_fork else samples:
            self._waiting.push(sequence)

    def _plan_forks(self, plan: StepPlan, leader: Sequence) -> None:
        """If the last row completes its prompt, as many as may run sample with it."""
        if plan.rows[-1].samples:
            room = self._config.max_num_seqs - len(self._running) - plan.num_forks
            plan.fork(leader.forks[: max(0, room)])

    def _fork(self, leader: Sequence, count: int, now: int) -> None:
        """The leader's prompt is computed: `count` run from here on, the others queue again."""
        followers = self._forks.disband(leader)
        for sequence in followers[:count]:
            self._kv.fork(leader, sequence)
            self._run(sequence, now)
            # Its prompt was computed with the leader's: its prefill began then.
            self.requests.admitted(sequence, leader.first_scheduled_ns or now)
        if followers[count:]:
            self._queue(followers[count:])

    def _admit(self, sequence: Sequence, prefix: list[int]) -> None:
        self._kv.admit(sequence, prefix)
        found = sequence.num_computed_tokens
        if sequence.host_blocks:
            self._swap_in(sequence, len(prefix))
        if sequence.preempted_ns is not None and self.swap is not None:
            self.swap.resumed(min(found, sequence.discarded_tokens), sequence.discarded_tokens)
        now = time.monotonic_ns()
        self._run(sequence, now)
        self.requests.admitted(sequence, now, swapped_tokens=sequence.num_computed_tokens - found)

    def _run(self, sequence: Sequence, now: int) -> None:
        sequence.state = SequenceState.RUNNING
        sequence.admitted_ns = now
        insort(self._running, sequence, key=_rank_of)

    def _swap_in(self, sequence: Sequence, num_found: int) -> None:
        """Fill the blocks of an admitted sequence from the host: it continues where it was."""
        assert self.swap is not None
        self.swap.swap_in(sequence, num_found)
        if sequence.num_computed_tokens < sequence.discarded_tokens:
            self._kv.commit(sequence, sequence.discarded_tokens)

    def _preempt(self, sequence: Sequence, cause: PreemptionCause) -> None:
        now = time.monotonic_ns()
        assert sequence.admitted_ns is not None
        # After running out of device memory, blocks are freed immediately, without a copy.
        swap = self.swap if cause == "out_of_blocks" else None
        mode, costs = _RECOMPUTE if swap is None else swap.preempt(sequence)
        event = RequestPreempted(
            sequence.sequence_id,
            sequence.request_id,
            mode,
            cause,
            discarded_tokens=sequence.num_computed_tokens,
            blocks=len(sequence.block_table),
            age_ns=now - sequence.admitted_ns,
            swap_cost_ns=None if costs is None else costs.swap_ns,
            recompute_cost_ns=None if costs is None else costs.recompute_ns,
        )
        self._running.remove(sequence)
        self._kv.release(sequence, "swapped_out" if mode == "swap" else "preempted")
        sequence.state = SequenceState.WAITING
        sequence.num_preemptions += 1
        sequence.preempted_ns = now
        sequence.discarded_tokens = event.discarded_tokens
        self._waiting.push(sequence)
        self.requests.preempted(sequence, event)

    def _urgency(self, request: Request) -> int:
        """Sort key of the calls, lower first; the only place that knows the policy.

        Under `priority` a class is worth a head start: all waiting calls age alike, so the order of
        two calls never changes, and no call is overtaken by one that arrives later than that.
        """
        if self._config.policy == "fcfs":
            return 0
        aging_ns = round(self._config.priority_aging_seconds * 1e9)
        if not aging_ns:
            return request.priority
        return request.arrival_ns + request.priority * aging_ns

    def _stop_reason(self, sequence: Sequence, token: int) -> FinishReason | None:
        sampling = sequence.sampling
        if token in sampling.stop_token_ids:
            return "stop"
        if token in self._eos_token_ids and not sampling.ignore_eos:
            return "stop"
        if sequence.num_output_tokens >= sampling.max_tokens:
            return "length"
        return None
