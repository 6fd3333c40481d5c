"""The reason why a step of SGLang's scheduler admitted no more, from what it left behind.

It goes through the requests that wait until it has as many as may run, `batch_is_full` says that
the pool is, or the tokens of a prefill are used up. Where it may pass requests over, or delay all
of them, what it does not say is left open.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from kvscope_events.observers.sglang.patching import Arguments, Keywords
from kvscope_events.vocabulary import AdmissionStop

_PASSES_OVER = ("enable_lora", "enable_hicache_storage", "enable_lmcache")
_DELAYS = ("prefill_delayer", "min_free_slots_delayer")


class Admission:
    """Follows batches from their choice to their result; with overlap two are under way."""

    def __init__(self, scheduler: Any) -> None:
        self.stop: AdmissionStop | None = None
        """Of the pass of the loop that is under way, as far as it has got."""
        self.stops: deque[AdmissionStop | None] = deque(maxlen=8)
        """Of the batches without a result."""
        self._scheduler = scheduler

    def prefill_planned(self, note: Any, plan: Any, args: Arguments, kwargs: Keywords) -> None:
        scheduler, running, batch = self._scheduler, plan.running_batch, plan.batch_to_run
        sequences = len(running.reqs) + (0 if batch is None else len(batch.reqs))
        rows = scheduler.req_to_token_pool.available_size()
        if not scheduler.waiting_queue:
            self.stop = "empty"
        elif sequences >= scheduler.max_running_requests or rows <= 0:
            self.stop = "sequences"
        elif running.batch_is_full:
            self.stop = "blocks"
        elif scheduler.chunked_req is not None:
            self.stop = "tokens"  # it took what was left of them
        elif not any(getattr(scheduler, name, None) for name in (*_PASSES_OVER, *_DELAYS)):
            self.stop = "unexplained" if batch is None else "tokens"

    def chosen(self, note: Any, plan: Any, args: Arguments, kwargs: Keywords) -> None:
        """The end of the pass: this batch is launched, if there is one."""
        if plan.batch_to_run is not None:
            self.stops.append(self.stop)

    def completed(self) -> AdmissionStop | None:
        """The reason for the step whose result was processed."""
        return self.stops.popleft() if self.stops else None
