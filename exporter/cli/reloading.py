"""SIGHUP reads the configuration again, on a thread of its own.

Without a configuration file the signal keeps its meaning: the terminal is gone, the process ends.
"""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

logger = logging.getLogger("kvscope")


class Hangup:
    """Remembers a SIGHUP until somebody takes it; several at once are one."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._ending = False

    def ask(self) -> None:
        self._asked.set()

    def end(self) -> None:
        """Nobody need wait any longer."""
        self._ending = True
        self._asked.set()

    def wait(self) -> bool:
        """Wait for a request; False at the end."""
        self._asked.wait()
        self._asked.clear()
        return not self._ending


@contextmanager
def hangups(wanted: bool) -> Iterator[Hangup]:
    """Inside the block SIGHUP is remembered, if wanted, from before there is anything to reload."""
    hangup = Hangup()

    def ask(number: int, frame: FrameType | None) -> None:
        hangup.ask()

    previous = signal.signal(signal.SIGHUP, ask) if wanted else None
    try:
        yield hangup
    finally:
        if wanted:
            signal.signal(signal.SIGHUP, previous)


@contextmanager
def reloading(hangup: Hangup, reload: Callable[[], None]) -> Iterator[None]:
    """Inside the block `reload` is called for every SIGHUP; it may not raise what it expects."""

    def run() -> None:
        while hangup.wait():
            try:
                reload()
            except Exception:
                logger.exception("the configuration could not be reloaded: a bug")

    thread = threading.Thread(target=run, name="kvscope-reload", daemon=True)
    thread.start()
    try:
        yield
    finally:
        hangup.end()
        thread.join()
