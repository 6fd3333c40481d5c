"""A ledger of the time of requests: every nanosecond of a request is in exactly one part.

Requests that wait are not touched in a step. Each state of a request has a clock, a sum of time by
part, which every step advances; a request notes its clock when it enters the state, and subtracts
when it leaves. Only sequences that a step computes prompts of are touched step by step. Where a
length that the producer states is longer than its steps, the rest goes to the part at the edge of
the state, so the parts of a request add up to its duration, to the nanosecond.
"""

from collections import deque
from operator import add, sub

from kvscope_events.events import (
    Batch,
    FirstToken,
    RequestFinished,
    RequestPreempted,
    RequestResumed,
    RequestScheduled,
    SequenceFinished,
    StepCompleted,
    StepScheduled,
)
from kvscope_events.vocabulary import AdmissionStop
from kvscope_exporter.state.call_fold import CallFold
from kvscope_exporter.state.calls import Request, Sequence
from kvscope_exporter.state.step_time import StepTime
from kvscope_exporter.state.tenants import name_of
from kvscope_exporter.state.time_parts import (
    LATE_SECONDS,
    NONE,
    PARTS,
    SLOW_TOKEN_SECONDS,
    Account,
    add_parts,
    settle_parts,
)

_AT = {part: index for index, part in enumerate(PARTS)}
_STEP, _TRANSFER, _PREEMPTED = _AT["wait_step"], _AT["wait_transfer"], _AT["preempted"]
_OWN, _AGAIN, _OTHERS = _AT["prefill_own"], _AT["prefill_again"], _AT["prefill_others"]
_DECODE, _PREFILLS = _AT["decode"], _AT["decode_prefills"]
_SLOW, _HOST, _UNKNOWN = _AT["slow"], _AT["host"], _AT["unknown"]
_WAITS: dict[AdmissionStop | None, int] = {
    "empty": _STEP,
    "sequences": _AT["wait_sequences"],
    "blocks": _AT["wait_blocks"],
    "tokens": _AT["wait_tokens"],
    "paused": _TRANSFER,
    "unexplained": _AT["wait_unexplained"],
    None: _UNKNOWN,
}
"""The part of those who wait through a step, by what stopped its admission."""

_WAITING, _PREFILLING, _DECODING, _STANDING = range(4)
"""States of a request: never admitted, without a token of its own turn, generating, preempted."""
_EDGES = (_STEP, _HOST, _DECODE, _PREEMPTED)
"""By state, the part of the time that no whole step covers."""
_LATE_NS = int(LATE_SECONDS * 1e9)
_SLOW_TOKEN_NS = int(SLOW_TOKEN_SECONDS * 1e9)
_LEARN_EVERY = 8
_DISTURBED = 1.15
"""Times the expected duration of a step, above which what exceeds it is slow."""
_CUT_OFF = frozenset({"abort", "error", "stop_string_or_abort"})
_SLOT_NS = 10 * 10**9
_SLOTS = 30


class TimeLedger(CallFold):
    """Requests that arrived before the stream was seen, or before a gap, are not in it."""

    name = "time_ledger"

    def __init__(self) -> None:
        super().__init__()
        self.first_token = NONE.copy()
        """Nanoseconds by part, to the first token, or to the end of requests without one."""
        self.rest = NONE.copy()
        """After it."""
        self.late_first_token = NONE.copy()
        """Those of late requests alone, and of requests that never got a token."""
        self.answered = self.late = self.unserved = 0
        """Requests with a first token; those of them that had it late; those that were given up,
        or failed, before it."""
        self.standing = NONE.copy()
        """Time that requests have waited so far, by what held them: the mean queue times time."""
        self.late_tokens = NONE.copy()
        """Time of further tokens that were late, by what their steps took."""
        self.slow_ns = self.expected_ns = 0
        """Sums over the steps whose time could be expected: the excess, and the expected time."""
        self.step_time = StepTime()
        self._countdown = _LEARN_EVERY
        self._clocks = [NONE.copy() for _ in _EDGES]
        self._again: set[int] = set()  # resumed sequences that have not emitted since
        self._left: list[Request] = []  # those of whose sequences none runs any more
        self._chunks: deque[StepScheduled] = deque(maxlen=4)
        self._due: list[tuple[FirstToken | RequestFinished, Account]] = []
        self._held: deque[tuple[int, dict[str, list[int]]]] = deque(maxlen=_SLOTS)
        self._last_ns = 0
        self._had_work = False

    @property
    def held(self) -> dict[str, list[int]]:
        """By tenant, over five minutes of sequences that ended: time they ran, the same times
        their tokens, and prompt tokens computed."""
        total: dict[str, list[int]] = {}
        first = self.batch.time_ns // _SLOT_NS - _SLOTS
        for number, tenants in self._held:
            if number > first:
                for name, sums in tenants.items():
                    before = total.get(name, (0, 0, 0))
                    total[name] = [x + y for x, y in zip(before, sums, strict=True)]
        return total

    def on_settled(self, _batch: Batch) -> None:
        if self._due:  # it ended outside of a step
            self._settle_due()

    def on_lost(self) -> None:
        self._again.clear()
        self._left.clear()
        self._chunks.clear()
        self._due.clear()
        self._had_work = False

    def on_arrived(self, request: Request) -> None:
        assert request.arrived is not None
        clock = self._clocks[_WAITING].copy()
        request.account = Account(name_of(request.arrived), _WAITING, clock)

    def on_admitted(self, event: RequestScheduled, request: Request | None) -> None:
        account = None if request is None else request.account
        if account is not None and account.state == _WAITING:
            self._enter(account, _PREFILLING)
            settle_parts(account.parts, event.queue_ns, _STEP)
            account.queue, account.queue_ns = account.parts, event.queue_ns
            account.parts = NONE.copy()

    def on_preempted(self, event: RequestPreempted, sequence: Sequence) -> None:
        request = sequence.request
        if request.account is not None:
            self._again.discard(event.sequence)
            if not request.unpreempted:
                self._enter(request.account, _STANDING)

    def on_resumed(self, event: RequestResumed, sequence: Sequence) -> None:
        account = sequence.request.account
        if account is None:
            return
        account.recompute += event.recompute_tokens
        if account.state == _STANDING:
            if account.first_ns is None or event.recompute_tokens:
                self._enter(account, _PREFILLING)
                if account.first_ns is not None:
                    self._again.add(event.sequence)
            else:
                self._enter(account, _DECODING)

    def on_answered(self, event: FirstToken, request: Request | None) -> None:
        if request is not None and request.account is not None:
            self._due.append((event, request.account))

    def on_left_waiting(self, request: Request) -> None:
        self._left.append(request)

    def on_ended(self, event: SequenceFinished, sequence: Sequence | None) -> None:
        self._again.discard(event.sequence)
        account = None if sequence is None else sequence.request.account
        if account is None or event.queue_ns is None:
            return
        ran_ns = max(0, event.elapsed_ns - event.queue_ns)
        tokens = event.prompt_tokens + event.output_tokens
        sums = self._slot().setdefault(account.tenant, [0, 0, 0])
        sums[0] += ran_ns
        sums[1] += ran_ns * tokens
        sums[2] += event.computed_tokens or 0

    def on_finished(self, event: RequestFinished, request: Request | None) -> None:
        account = None if request is None else request.account
        if account is None:
            return
        if event.reason in ("stop", "length", "error"):  # at the end of a step: it counts as well
            self._due.append((event, account))
            return
        for earlier, other in self._due:
            if other is account and isinstance(earlier, FirstToken):
                self._answer(earlier, account)
        self._close(event, account)

    def on_step_scheduled(self, event: StepScheduled) -> None:
        if event.sequences:
            self._chunks.append(event)

    def on_step_completed(self, event: StepCompleted) -> None:
        now_ns, duration = self.batch.time_ns, event.duration_ns
        interval = max(duration, now_ns - self._last_ns) if self._had_work else duration
        self._last_ns, self._had_work = now_ns, event.running + event.waiting > 0
        decode, prefill = event.decode_tokens, event.prefill_tokens
        waiting_clock, prefilling, decoding, standing = self._clocks
        standing[_PREEMPTED] += interval
        self._countdown -= 1
        if prefill or self._countdown <= 0:  # steps that only generate are much alike
            self._countdown = _LEARN_EVERY if self.step_time.is_fitted else 0
            self.step_time.learn(prefill, decode, duration)
        slow, gap = self._slowness(prefill, decode, duration), interval - duration
        base, added, own = duration - slow, 0, _DECODE
        if prefill:
            chunks = self._chunks.popleft() if self._chunks else None
            prefilling[_UNKNOWN if chunks is None else _OTHERS] += base
            if chunks is not None:
                self._share(chunks, base, prefill + decode)
            if self.step_time.is_fitted:
                added = min(base, self.step_time.prefill_ns(prefill))
                decoding[_PREFILLS] += added
            else:
                own = _UNKNOWN
        else:
            prefilling[_OTHERS] += base
        decoding[own] += base - added
        # A request that only waits for this step to end waits for the prompts in it, if any.
        held = _WAITS[event.admission_stop]
        if held == _STEP and added:
            waiting_clock[_OTHERS] += added
            waiting_clock[_STEP] += interval - added
        else:
            waiting_clock[held] += interval
        if event.requests_waiting:
            self._wait(event, held, interval, added if held == _STEP else 0)
        if slow:
            prefilling[_SLOW] += slow
            decoding[_SLOW] += slow
        if gap:
            prefilling[_HOST] += gap
            decoding[_HOST] += gap
        if interval > _SLOW_TOKEN_NS and decode:
            late = self.late_tokens
            late[_SLOW] += decode * slow
            late[_HOST] += decode * gap
            late[_PREFILLS] += decode * added
            late[own] += decode * (base - added)
        if self._again:
            for number in self._again.intersection(event.emitted):
                self._again.discard(number)
                account = self._account_of(number)
                if account is not None and account.state == _PREFILLING:
                    self._enter(account, _DECODING)
        if self._due:
            self._settle_due()
        if self._left:
            for request in self._left:  # of those that have not ended only victims are left
                account = request.account
                if account is not None and not account.is_closed and not request.unpreempted:
                    self._enter(account, _STANDING)
            self._left.clear()

    def _account_of(self, number: int) -> Account | None:
        """The account of the request of a sequence."""
        sequence = self.calls.sequences.get(number)
        return None if sequence is None else sequence.request.account

    def _wait(self, event: StepCompleted, held: int, interval: int, added: int) -> None:
        """Those who wait have waited for what stopped admission, or for something of their own.

        added: the part of the interval that their clock counts for other prompts.
        """
        waiting = event.requests_waiting
        for number in event.deferred:
            account = self._account_of(number)
            if account is not None and account.state == _WAITING:
                account.parts[held] -= interval - added
                account.parts[_OTHERS] -= added
                account.parts[_TRANSFER] += interval
                self.standing[_TRANSFER] += interval
                waiting -= 1
        self.standing[held] += max(0, waiting) * interval

    def _slowness(self, prefill: int, decode: int, duration: int) -> int:
        """The time beyond the expected; 0 while nothing can be expected."""
        if not self.step_time.is_known:
            return 0
        expected = max(0, self.step_time.expected_ns(prefill, decode))
        if duration <= expected:
            self.expected_ns += duration
            return 0
        self.expected_ns += expected
        if duration <= _DISTURBED * expected:
            return 0
        self.slow_ns += duration - expected
        return duration - expected

    def _share(self, chunks: StepScheduled, base: int, tokens: int) -> None:
        """A prompt's own time is its share of the step's tokens."""
        for number, computed in zip(chunks.sequences, chunks.tokens, strict=False):
            account = self._account_of(number)
            if account is None or account.state != _PREFILLING:
                continue
            own = base * min(computed, tokens) // max(1, tokens)
            again = own * min(computed, account.recompute) // max(1, computed)
            if account.first_ns is not None:
                again = own
            account.recompute -= min(computed, account.recompute)
            account.parts[_OTHERS] -= own
            account.parts[_AGAIN] += again
            account.parts[_OWN] += own - again

    def _enter(self, account: Account, state: int) -> None:
        clocks = self._clocks
        spent = map(sub, clocks[account.state], account.mark)
        account.parts[:] = map(add, account.parts, spent)
        account.state = state
        account.mark = clocks[state].copy()

    def _settle_due(self) -> None:
        due, self._due = self._due, []
        for event, account in due:
            if isinstance(event, RequestFinished):
                self._close(event, account)
            elif account.first_ns is None and not account.is_closed:
                self._answer(event, account)

    def _answer(self, event: FirstToken, account: Account) -> None:
        edge = _EDGES[account.state]
        self._enter(account, _DECODING)
        settle_parts(account.parts, max(0, event.elapsed_ns - account.queue_ns), edge)
        add_parts(account.parts, account.queue)
        account.first_ns = event.elapsed_ns
        self.answered += 1
        add_parts(self.first_token, account.parts)
        if event.elapsed_ns > _LATE_NS:
            self.late += 1
            add_parts(self.late_first_token, account.parts)
        account.parts = NONE.copy()

    def _close(self, event: RequestFinished, account: Account) -> None:
        if account.is_closed:
            return
        account.is_closed = True
        edge = _EDGES[account.state]
        self._enter(account, account.state)
        before_ns = account.queue_ns if account.first_ns is None else account.first_ns
        settle_parts(account.parts, max(0, event.elapsed_ns - before_ns), edge)
        if account.first_ns is not None:
            add_parts(self.rest, account.parts)
            return
        add_parts(account.parts, account.queue)
        add_parts(self.first_token, account.parts)
        if event.reason in _CUT_OFF:
            self.unserved += 1
            add_parts(self.late_first_token, account.parts)

    def _slot(self) -> dict[str, list[int]]:
        number = self.batch.time_ns // _SLOT_NS
        if not self._held or self._held[-1][0] != number:
            self._held.append((number, {}))
        return self._held[-1][1]
