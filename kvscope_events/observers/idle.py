"""A thread that serves readers of an engine which makes no call while it has no request."""

import threading
from abc import ABC, abstractmethod

from kvscope_events.observers.log import warn

TICK_SECONDS = 0.25


class IdleThread(ABC):
    """Runs from `start` to `stop`, which does not wait for it."""

    def __init__(self) -> None:
        self._stopping = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="kvscope-idle", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()

    @abstractmethod
    def tick(self) -> None:
        """One look at the engine."""

    def _run(self) -> None:
        while not self._stopping.wait(TICK_SECONDS):
            try:
                self.tick()
            except Exception as error:  # it runs in a foreign server: report it and end
                warn(f"snapshots are sent only while the engine runs steps: {error!r}")
                return
