"""A stream's own description: the last Hello, and the number of events of each kind."""

import logging
from collections import Counter
from typing import Any, get_args

from kvscope_events.events import Batch, EngineEvent, Hello, ObserverStopped
from kvscope_exporter.state.call_fold import CallFold
from kvscope_exporter.state.fold import Fold


class EventCounts(Fold):
    """Counts by type; all types are present from the start."""

    name = "census"

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[type[Any]] = Counter(dict.fromkeys(get_args(EngineEvent), 0))

    def on_batch(self, batch: Batch) -> None:
        self.counts.update(map(type, batch.events))

    def apply(self, event: EngineEvent) -> None:
        self.counts[type(event)] += 1


logger = logging.getLogger(__name__)


MAX_REASON = 512
"""Characters that are kept."""


class HelloTracker(CallFold):
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
