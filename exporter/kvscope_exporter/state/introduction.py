"""A stream's own description: the last Hello, and the number of events of each kind."""

import logging
from typing import Any, get_args

from kvscope_events.events import Batch, EngineEvent, Hello, ObserverStopped
from kvscope_exporter.state.fold import Fold


class EventCounts(Fold):
    """Counts by type; all types are present from the start."""

    name = "census"

    def __init__(self) -> None:
        self.counts: dict[type[Any], int] = dict.fromkeys(get_args(EngineEvent), 0)
        super().__init__(dict.fromkeys(self.counts, self._count))

    def on_batch(self, batch: Batch) -> None:
        counts = self.counts
        for event in batch.events:
            counts[type(event)] += 1

    def _count(self, event: EngineEvent) -> None:
        self.counts[type(event)] += 1


logger = logging.getLogger(__name__)


MAX_REASON = 512
"""Characters that are kept."""


class HelloTracker(Fold):
    """Facts arrive late and may change; a gap does not make them wrong."""

    name = "introduction"

    def __init__(self) -> None:
        super().__init__()
        self.hello: Hello | None = None
        """The last Hello; None before the first."""
        self.stopped: str | None = None
        """The reason why the observer is off, by its own fault or by order; None: it is not."""

    def on_hello(self, event: Hello) -> None:
        self.hello = event
        self.stopped = None

    def on_observer_stopped(self, event: ObserverStopped) -> None:
        self.stopped = event.reason[:MAX_REASON]
        who = "an engine" if self.hello is None else f"{self.hello.model_name} {self.hello.engine}"
        logger.warning("the observer of %s is off: %s", who, self.stopped)
