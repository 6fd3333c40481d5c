"""A page while its server starts: the states that it shows, and the parts of the start."""

import threading
from typing import get_args

import httpx

from kvscope_events.vocabulary import StartPhase
from kvscope_exporter.catalogue.server import SERVER_STATES
from tests.support.pages import sample

PHASES = get_args(StartPhase)
PHASE = "kvscope_start_phase_seconds"


class States:
    """Those of a sidecar's page, each once, in the order in which they came."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.seen: list[str] = []
        self.ready_while_loading = False
        self.begun: list[list[str]] = []
        """Parts of the start on the page, each time that there were more."""
        self.page = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopping.wait(0.2):
            try:
                self.page = page = httpx.get(f"{self._url}/metrics", timeout=30).text
            except httpx.TransportError:  # not served yet, or no longer
                continue
            begun = [
                p
                for p in PHASES
                if sample(page, PHASE, phase=p, engine="0", worker="0") is not None
            ]
            if begun not in self.begun:
                self.begun.append(begun)
            found = {s: sample(page, "kvscope_server_state", state=s) for s in SERVER_STATES}
            (now,) = (state for state, number in found.items() if number)
            if not self.seen or self.seen[-1] != now:
                self.seen.append(now)
            if now != "ready" and sample(page, "kvscope_engine_ready", engine="0") == 0:
                self.ready_while_loading = True
