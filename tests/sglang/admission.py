"""The reasons why a driven SGLang's steps admitted no more, by what its own parts answered."""

from collections.abc import Callable
from typing import Any


class Expected:
    """Beside the observer: asks no flag that SGLang keeps, and remembers each answer itself."""

    def __init__(self, scheduler: Any) -> None:
        from sglang.srt.managers.schedule_batch import ScheduleBatch
        from sglang.srt.managers.schedule_policy import PrefillAdder

        self.stops: list[str] = []
        self._scheduler = scheduler
        self._reason = "unexplained"
        self._answer = ""
        after(PrefillAdder, "add_one_req", self._answered)
        after(ScheduleBatch, "retract_decode", self._retracted)
        after(scheduler, "get_new_batch_prefill", self._planned)
        after(scheduler, "get_next_batch_to_run", self._chosen)

    def _answered(self, result: Any) -> None:
        self._answer = result.name

    def _retracted(self, result: Any) -> None:
        self._reason = "blocks"

    def _planned(self, plan: Any) -> None:
        answer, self._answer = self._answer, ""
        new = [] if plan.batch_to_run is None else plan.batch_to_run.reqs
        if not self._scheduler.waiting_queue:
            self._reason = "empty"
        elif len(plan.running_batch.reqs) + len(new) >= self._scheduler.max_running_requests:
            self._reason = "sequences"
        elif answer == "NO_TOKEN":
            self._reason = "blocks"
        elif answer == "OTHER" or new:
            self._reason = "tokens"
        elif self._reason not in ("sequences", "blocks"):  # it was full already
            self._reason = "unexplained"

    def _chosen(self, plan: Any) -> None:
        if plan.batch_to_run is not None:
            self.stops.append(self._reason)


def after(target: Any, method: str, follow: Callable[[Any], None]) -> None:
    original = getattr(target, method)

    def wrapper(*arguments: Any, **keywords: Any) -> Any:
        result = original(*arguments, **keywords)
        follow(result)
        return result

    setattr(target, method, wrapper)
