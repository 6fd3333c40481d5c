"""The engine's heartbeat: how long steps take, what they compute, when the last one ended."""

from kvscope_events.events import (
    PoolCreated,
    StepCompleted,
)
from kvscope_exporter.state import buckets
from kvscope_exporter.state.call_fold import CallFold
from kvscope_exporter.state.histogram import Histogram


class Steps(CallFold):
    """Sums over steps."""

    name = "steps"

    def __init__(self) -> None:
        super().__init__()
        self.duration = Histogram(buckets.STEP_SECONDS)
        self.prefill_tokens = 0
        self.decode_tokens = 0
        self.last_step_ns: int | None = None
        """When the last step ended, on our monotonic clock. Before the first one, the time at which
        the pool was created: the first step can hang as well."""

    def on_pool_created(self, event: PoolCreated) -> None:
        self._mark()

    def on_step_completed(self, event: StepCompleted) -> None:
        self.duration.observe(event.duration_ns / 1e9)
        self.prefill_tokens += event.prefill_tokens
        self.decode_tokens += event.decode_tokens
        self._mark()

    def _mark(self) -> None:
        self.last_step_ns = self.batch.arrived_ns
