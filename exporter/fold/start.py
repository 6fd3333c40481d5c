"""The start of a server's worker: what it does now, and how long each part has taken."""

from typing import get_args

from exporter.fold.fold import Fold
from kvscope_events.events import StartProgressed
from kvscope_events.vocabulary import StartPhase

PHASES: tuple[StartPhase, ...] = get_args(StartPhase)


class Start(Fold):
    """The last report is whole, so a gap does not make it wrong."""

    name = "start"

    def __init__(self) -> None:
        super().__init__({StartProgressed: self._progressed})
        self._last = StartProgressed({})

    def seconds(self) -> dict[str, float]:
        """By phase that has begun; the present one lasts until the worker was last heard."""
        began = self._last.began_ns
        phases = [phase for phase in PHASES if phase in began]
        ends = [*(began[phase] for phase in phases[1:]), self._last.ended_ns or self.batch.wall_ns]
        return {
            phase: max(0, end_ns - began[phase]) / 1e9
            for phase, end_ns in zip(phases, ends, strict=False)
        }

    def _progressed(self, event: StartProgressed) -> None:
        self._last = event
