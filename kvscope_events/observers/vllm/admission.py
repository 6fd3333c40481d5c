"""The reason why a step of vLLM's scheduler admitted no more, from what it left behind.

`schedule()` goes through the requests that wait until there are no more of them, or no slots,
blocks or tokens for the next. Only refused blocks are noted meanwhile; all else can be seen
afterwards. Requests that it passes over are its first ones up to 0.17, are in a queue of their own
up to 0.30, and in a set since.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from kvscope_events.observers.vllm.requests import Sequence
from kvscope_events.vocabulary import AdmissionStop, Deferral

MAX_PASSED_OVER = 256
"""Requests that a step names, at most."""
Stop = tuple[AdmissionStop | None, list[int], list[Deferral]]
"""The reason, the sequences that were passed over, and what each of them waits for."""
UNKNOWN: Stop = (None, [], [])
_EMPTY: Stop = ("empty", [], [])
_WAITS_FOR: dict[str, Deferral] = {
    "WAITING_FOR_REMOTE_KVS": "transfer",
    "WAITING_FOR_FSM": "grammar",  # up to 0.18
    "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR": "grammar",
    "WAITING_FOR_STREAMING_REQ": "other",
}


class Admission:
    def __init__(
        self, scheduler: Any, running: Any, find: Callable[[str], Sequence | None]
    ) -> None:
        """running: vLLM's status of a request that runs."""
        self.no_blocks = False
        """In this call a waiting request was refused blocks, or a running one lost its own."""
        self.admitted = False
        """In this call a waiting request got blocks."""
        self._is_throttled = False
        self._scheduler, self._find = scheduler, find
        statuses = type(running).__members__
        self._waits_for = {statuses[n]: kind for n, kind in _WAITS_FOR.items() if n in statuses}
        queues = ("deferred_waiting", "skipped_waiting", "waiting")
        self._queue = next(name for name in queues if hasattr(scheduler, name))
        # Others than those whose status says so.
        self._passes_over = any(getattr(scheduler, n, None) for n in ("connector", "lora_config"))
        limits = ("max_num_active_reqs", "max_num_running_reqs")
        self._limit = next(name for name in limits if hasattr(scheduler, name))
        speculation = getattr(scheduler.vllm_config, "speculative_config", None)
        self._drafts = getattr(speculation, "max_num_new_slots_for_drafting", None) or 0
        self._least_room = 1 + max(self._drafts, getattr(scheduler, "num_spec_tokens", 0))
        if getattr(scheduler, "need_mamba_block_aligned_split", False):
            self._least_room = max(self._least_room, scheduler.cache_config.block_size)

    def begin(self, *, is_throttled: bool) -> None:
        """is_throttled: it is the turn of other data-parallel ranks to prefill."""
        self.no_blocks = self.admitted = False
        self._is_throttled = is_throttled

    def stop(self, output: Any, room: int, prefill: int) -> Stop:
        """The reason for the step that was just put together.

        room: tokens left of its budget. prefill: tokens of prompts among those it computes.
        """
        scheduler = self._scheduler
        running, waiting = scheduler.get_request_counts()
        if not waiting:
            return _EMPTY
        own, others = self._passed_over()
        limit = getattr(scheduler, self._limit)
        reason: AdmissionStop | None = None
        if len(own) >= waiting:
            reason = "empty"
        elif getattr(scheduler, "_pause_state", 0):
            reason = "paused"
        elif running >= limit:
            reason = "sequences"
        elif self.no_blocks:
            reason = "blocks"
        elif room <= 0 or self._is_tight(output, room, prefill):
            reason = "tokens"
        elif self._went_through(waiting):
            reason = "empty"
            own += [(request, self._kind(request)) for request in others]
        elif running + sum(kind == "other" for _, kind in own) >= limit:
            # Sessions between two parts of their input hold slots. They are counted here, since
            # vLLM's own number of them, which decides, may be wrong.
            reason = "sequences"
        elif not self.admitted and (self._queue != "waiting" or not self._passes_over):
            reason = "unexplained"
        if not own:
            return reason, [], []
        found = [(self._find(request.request_id), kind) for request, kind in own]
        known = [(sequence.number, kind) for sequence, kind in found if sequence is not None]
        return reason, [number for number, _ in known], [kind for _, kind in known]

    def _passed_over(self) -> tuple[list[tuple[Any, Deferral]], list[Any]]:
        """Those whose status says what they wait for, and others that were set apart."""
        queue = getattr(self._scheduler, self._queue)
        if not queue:
            return [], []
        heap = getattr(queue, "_heap", None)
        own: list[tuple[Any, Deferral]] = []
        others: list[Any] = []
        for entry in islice(queue if heap is None else heap, MAX_PASSED_OVER):
            request = entry[-1] if type(entry) is tuple else entry
            kind = self._waits_for.get(request.status)
            if kind is not None:
                own.append((request, kind))
            elif self._queue != "waiting":
                others.append(request)
            elif heap is None or not own:
                break
        return own, others

    def _is_tight(self, output: Any, room: int, prefill: int) -> bool:
        """Whether the tokens that are left are too few for the next request."""
        scheduler, config = self._scheduler, self._scheduler.scheduler_config
        if room - self._drafts * len(output.num_scheduled_tokens) < self._least_room:
            return True
        interval = getattr(scheduler, "local_prefill_interval", 0)
        if interval > 1 and scheduler.num_executed_steps - scheduler.last_prefill_step < interval:
            return not prefill
        if self._is_throttled and not prefill:
            return True
        if not scheduler.waiting:
            return False
        head = scheduler.waiting.peek_request()
        if output.scheduled_encoder_inputs and head.has_encoder_inputs:
            return True  # a budget of their own, of tokens as well
        is_whole = not getattr(config, "enable_chunked_prefill", True)
        return bool(is_whole and head.num_tokens - head.num_computed_tokens > room)

    def _went_through(self, waiting: int) -> bool:
        """Whether all that still wait were passed over, as far as that is known."""
        if self._queue == "skipped_waiting":
            return not self._scheduler.waiting
        return self._queue != "waiting" and len(self._scheduler.deferred_waiting) >= waiting

    def _kind(self, request: Any) -> Deferral:
        if self._scheduler.lora_config and request.lora_request:
            return "adapter"
        return "other" if self._scheduler.connector is None else "transfer"
