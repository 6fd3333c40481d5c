"""The number of events of each type."""

from typing import Any, get_args

from exporter.fold.fold import Fold
from kvscope_events.events import Batch, EngineEvent


class Census(Fold):
    """Counts by type; all types are there from the start."""

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
