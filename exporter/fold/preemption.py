"""The bill of preemption: victims, tokens thrown away, tokens computed again, time stalled."""

from itertools import product
from typing import get_args

from exporter.fold.fold import Fold
from kvscope_events.events import RequestPreempted, RequestResumed
from kvscope_events.vocabulary import PreemptionCause, PreemptionMode


class Preemption(Fold):
    """Sums. A victim that ends without resuming counts as preempted, but has no stall time."""

    name = "preemption"

    def __init__(self) -> None:
        super().__init__({RequestPreempted: self._preempted, RequestResumed: self._resumed})
        self.preemptions: dict[tuple[str, ...], int] = dict.fromkeys(
            product(get_args(PreemptionMode), get_args(PreemptionCause)), 0
        )
        """Preemptions by mode and cause."""
        self.discarded_tokens = 0
        self.recomputed_tokens = 0
        self.stalled_ns = 0

    def _preempted(self, event: RequestPreempted) -> None:
        self.preemptions[event.mode, event.cause] += 1
        self.discarded_tokens += event.discarded_tokens

    def _resumed(self, event: RequestResumed) -> None:
        self.recomputed_tokens += event.recompute_tokens
        self.stalled_ns += event.stalled_ns
