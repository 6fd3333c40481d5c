"""The engine's identity: its last Hello, and whether its observer has switched itself off."""

from exporter.fold.fold import Fold
from kvscope_events.events import Hello, ObserverStopped


class Introduction(Fold):
    """Facts arrive late and may change; a gap makes none of them wrong."""

    name = "introduction"

    def __init__(self) -> None:
        super().__init__({Hello: self._introduced, ObserverStopped: self._stopped})
        self.hello: Hello | None = None
        """The last Hello; None before the first."""
        self.stopped: str | None = None
        """Why the observer switched itself off; None: it has not."""

    def _introduced(self, event: Hello) -> None:
        self.hello = event
        self.stopped = None

    def _stopped(self, event: ObserverStopped) -> None:
        self.stopped = event.reason
