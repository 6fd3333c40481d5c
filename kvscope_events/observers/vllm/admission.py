"""The reason why a step of vLLM's scheduler admitted no more, from what it left behind.

`schedule()` goes through the requests that wait until nothing is left of them, of the slots, of the
blocks or of the tokens. Which of these it was can be read off afterwards; only blocks that were
refused, and victims, are noted meanwhile. It passes over requests that wait for something of their
own, which are told apart, and looks at no other one.

They are kept in `waiting` up to 0.17, in `skipped_waiting` from 0.18, and from 0.31 among the
others again, with a set of them in `deferred_waiting`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from kvscope_events.observers.vllm.requests import Sequence
from kvscope_events.vocabulary import AdmissionStop, Deferral

MAX_DEFERRED = 256
"""Requests of their own that a step names, at most."""
Stop = tuple[AdmissionStop | None, list[int], list[Deferral]]
"""The reason, the sequences that wait for something of their own, and what it is for each."""
UNKNOWN: Stop = (None, [], [])
_EMPTY: Stop = ("empty", [], [])

_WAITS_FOR: dict[str, Deferral] = {
    "WAITING_FOR_REMOTE_KVS": "transfer",
    "WAITING_FOR_FSM": "grammar",  # up to 0.18
    "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR": "grammar",
    "WAITING_FOR_STREAMING_REQ": "other",
}


class Admission:
    """Follows the calls of `schedule`. The step pays a look at the length of the queue."""

    def __init__(
        self, scheduler: Any, running: Any, find: Callable[[str], Sequence | None]
    ) -> None:
        """running: vLLM's status of a request that runs."""
        self.no_blocks = False
        """A waiting request was refused blocks in this call, or a running one lost its own."""
        self.admitted = False
        """A waiting request got blocks in this call."""
        self._throttled = False
        self._scheduler, self._find = scheduler, find
        statuses = type(running).__members__
        self._waits_for = {statuses[n]: kind for n, kind in _WAITS_FOR.items() if n in statuses}
        self._streaming = statuses.get("WAITING_FOR_STREAMING_REQ")
        apart = (
            name for name in ("deferred_waiting", "skipped_waiting") if hasattr(scheduler, name)
        )
        self._apart = next(apart, "waiting")
        self._limit = "max_num_active_reqs"
        if not hasattr(scheduler, self._limit):
            self._limit = "max_num_running_reqs"
        speculation = getattr(scheduler.vllm_config, "speculative_config", None)
        self._draft_slots = getattr(speculation, "max_num_new_slots_for_drafting", None) or 0
        self._least_room = 1 + getattr(scheduler, "num_spec_tokens", 0)
        if getattr(scheduler, "need_mamba_block_aligned_split", False):
            self._least_room = max(self._least_room, scheduler.cache_config.block_size)

    def begin(self, *, throttled: bool) -> None:
        """throttled: data-parallel ranks balance their prefills, and it is not this one's turn."""
        self.no_blocks = self.admitted = False
        self._throttled = throttled

    def forget(self) -> None:
        """Let go of vLLM's scheduler."""
        self._scheduler = None

    def stop(self, output: Any, room: int, prefill: int) -> Stop:
        """The reason for the step that was just put together.

        room: tokens left of its budget. prefill: tokens of prompts among those it computes.
        """
        scheduler = self._scheduler
        running, waiting = scheduler.get_request_counts()
        if not waiting:
            return _EMPTY
        own, others = self._passed_over()
        reason: AdmissionStop | None
        if len(own) >= waiting:
            reason = "empty"
        elif getattr(scheduler, "_pause_state", 0):
            reason = "paused"
        elif running >= getattr(scheduler, self._limit):
            reason = "sequences"
        elif self.no_blocks:
            reason = "blocks"
        elif room <= 0 or self._is_tight(output, room, prefill):
            reason = "tokens"
        elif self._went_through(waiting):
            reason = "empty"
            own += [(request, self._kind(request)) for request in others]
        elif self._sessions_fill(running, own):
            reason = "sequences"
        elif self.admitted or (self._apart == "waiting" and self._may_pass_over):
            reason = None
        else:
            reason = "unexplained"
        found = [(self._find(request.request_id), kind) for request, kind in own]
        known = [(sequence.number, kind) for sequence, kind in found if sequence is not None]
        return reason, [number for number, _ in known], [kind for _, kind in known]

    def _passed_over(self) -> tuple[list[tuple[Any, Deferral]], list[Any]]:
        """Requests whose status says what they wait for; and others among those set apart."""
        queue = getattr(self._scheduler, self._apart)
        own: list[tuple[Any, Deferral]] = []
        others: list[Any] = []
        if not queue:
            return own, others
        together = self._apart == "waiting"  # those passed over are its first ones
        heap = getattr(queue, "_heap", None)
        for entry in islice(queue if heap is None else heap, MAX_DEFERRED):
            request = entry[-1] if type(entry) is tuple else entry
            kind = self._waits_for.get(request.status)
            if kind is not None:
                own.append((request, kind))
            elif not together:
                others.append(request)
            elif heap is None or not own:
                break
        return own, others

    def _is_tight(self, output: Any, room: int, prefill: int) -> bool:
        """Whether the tokens that are left are too few for the next request."""
        scheduler, config = self._scheduler, self._scheduler.scheduler_config
        rows = len(output.num_scheduled_tokens)
        total = output.total_num_scheduled_tokens
        if room < self._least_room:
            return True
        if self._draft_slots and config.max_num_batched_tokens - total <= self._draft_slots * (
            rows + 1
        ):
            return True
        interval = getattr(scheduler, "local_prefill_interval", 0)
        if not prefill and (
            self._throttled
            or (
                interval > 1
                and scheduler.num_executed_steps - scheduler.last_prefill_step < interval
            )
        ):
            return True
        queue = scheduler.waiting
        if not queue:
            return False
        head = queue.peek_request()
        if output.scheduled_encoder_inputs and head.has_encoder_inputs:
            return True  # its own budget, of tokens as well
        if getattr(config, "enable_chunked_prefill", True):
            return False
        return bool(head.num_tokens - head.num_computed_tokens > room)

    def _went_through(self, waiting: int) -> bool:
        """Whether all that still wait were looked at and passed over, as far as that is known."""
        scheduler = self._scheduler
        if self._apart == "skipped_waiting":
            return not scheduler.waiting
        return self._apart == "deferred_waiting" and len(scheduler.deferred_waiting) >= waiting

    @property
    def _may_pass_over(self) -> bool:
        """Whether requests are passed over that have no status of their own for it."""
        scheduler = self._scheduler
        return scheduler.connector is not None or bool(scheduler.lora_config)

    def _kind(self, request: Any) -> Deferral:
        scheduler = self._scheduler
        if scheduler.lora_config and request.lora_request:
            return "adapter"
        if scheduler.connector is not None or getattr(scheduler, "ec_connector", None) is not None:
            return "transfer"
        return "other"

    def _sessions_fill(self, running: int, own: list[tuple[Any, Deferral]]) -> bool:
        """Whether sessions between two parts of their input hold all other slots.

        They are counted here: vLLM's own number of them decides, and has been wrong.
        """
        scheduler = self._scheduler
        if not getattr(scheduler, "num_waiting_for_streaming_input", 0):
            return False
        sessions = sum(request.status == self._streaming for request, _ in own)
        return bool(running + sessions >= getattr(scheduler, self._limit))
