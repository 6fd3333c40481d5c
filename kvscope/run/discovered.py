"""Logs the observers in the command of a `kvscope run`: which appeared, which stopped."""

import logging
import time
from collections.abc import Callable

from kvscope_events.events import Hello
from kvscope_exporter.state import HelloTracker
from kvscope_exporter.targets.exporter import Exporter

logger = logging.getLogger("kvscope")

_CHECK = (
    "no observer has reported from the command after %g s. Unless it is still starting, check that "
    "it is vLLM 0.11 or newer; that its Python is 3.10 or newer, reads PYTHONPATH, and has "
    "msgspec; that it runs on this machine and not in a container; that KVSCOPE_OBSERVER=off is "
    "not set; and its log for lines with `kvscope:`. See docs/attach/vllm.md"
)


class Sightings:
    """One line for each observer that says Hello or stops, and one if none appears in time."""

    def __init__(
        self, page: Exporter, hint_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._page = page
        self._hint_seconds = hint_seconds
        self._clock = clock
        self._since = clock()
        self._told: set[tuple[str, str]] = set()
        self._hinted = False

    def look(self) -> None:
        """Called periodically."""
        for target in self._page.targets:
            introduction = target.folds[HelloTracker]
            hello = introduction.hello
            if hello is None:
                continue
            if self._is_new(hello.session, "hello"):
                logger.info("observed: %s", _who(hello))
            reason = introduction.stopped
            if reason is not None and self._is_new(hello.session, "stopped"):
                logger.warning("no longer observed: %s: %s", _who(hello), reason)
        if not self._told and not self._hinted:
            waited = self._clock() - self._since
            if waited >= self._hint_seconds:
                self._hinted = True
                logger.warning(_CHECK, self._hint_seconds)

    def _is_new(self, session: str, what: str) -> bool:
        known = (session, what) in self._told
        self._told.add((session, what))
        return not known


def _who(hello: Hello) -> str:
    name = f"{hello.server} {hello.server_version}, model {hello.model_name}"
    place = f"engine {hello.engine}"
    if hello.worker is not None:
        place += f", worker {hello.worker}"
    return f"{name}, {place} (pid {hello.pid})"
