"""The engine's identity: its last Hello, and whether its observer has switched itself off."""

import logging

from exporter.fold.fold import Fold
from kvscope_events.events import Hello, ObserverStopped

logger = logging.getLogger(__name__)


MAX_REASON = 512
"""Characters that are kept."""


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
        self.stopped = event.reason[:MAX_REASON]
        who = "an engine" if self.hello is None else f"{self.hello.model_name} {self.hello.engine}"
        logger.warning("the observer of %s has switched itself off: %s", who, self.stopped)
