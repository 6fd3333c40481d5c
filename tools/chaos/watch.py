"""The server's figures, sampled all along by a thread."""

import threading

from tools.chaos.figures import Figures
from tools.chaos.server import ChaosServer

_INTERVAL_SECONDS = 0.1


class Watch:
    """Samples from construction until `stop`, or until the server has ended."""

    def __init__(self, server: ChaosServer) -> None:
        self._server = server
        self._peak = server.figures()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample_all_along, daemon=True)
        self._thread.start()

    def take(self) -> Figures:
        """The largest figures since the last call, each by itself."""
        with self._lock:
            taken, self._peak = self._peak, self._server.figures()
        return taken

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _sample_all_along(self) -> None:
        while not self._ended.wait(_INTERVAL_SECONDS):
            try:
                seen = self._server.figures()
            except OSError:  # it has ended, which the probe reports
                return
            with self._lock:
                self._peak = Figures(
                    rss_mib=max(self._peak.rss_mib, seen.rss_mib),
                    descriptors=max(self._peak.descriptors, seen.descriptors),
                    threads=max(self._peak.threads, seen.threads),
                )
