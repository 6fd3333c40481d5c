"""Signals of commands that serve: an orderly end, from the first moment to the last.

Ctrl-C and SIGTERM ask for it, and SIGHUP where it means that the terminal is gone. A service, which
has no terminal, gets SIGHUP from an operator who expects a reload: it goes on serving.
"""

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from kvscope.serving.signal_thread import SignalThread

logger = logging.getLogger("kvscope")


class Ending:
    """Remembers a signal that came before there was a server, and passes later ones on to it."""

    def __init__(self) -> None:
        self._requested = False
        self._server: uvicorn.Server | None = None

    def request(self) -> None:
        """End the server now, or as soon as it is attached."""
        self._requested = True
        if self._server is not None:
            self._server.should_exit = True

    def attach(self, server: uvicorn.Server) -> None:
        """Set the server that signals end."""
        self._server = server
        server.should_exit = server.should_exit or self._requested


@contextmanager
def signals_end(*, reloads: bool = False) -> Iterator[Ending]:
    """Inside the block, signals end the server in an orderly way, even while it is being set up.

    reloads: SIGHUP is left to the caller, who reads its configuration again.

    uvicorn has handlers of its own while it runs, and afterwards raises the signal that ended it
    once more, which has no further effect here.
    """
    ending = Ending()

    def end(number: int, frame: FrameType | None) -> None:
        ending.request()

    previous = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        # Under nohup it is ignored, and stays so.
        if reloads or signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
            yield ending
        else:
            with _hangup_noticed(ending):
                yield ending
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _hangup_noticed(ending: Ending) -> Iterator[None]:
    has_terminal = _has_terminal()

    def noticed() -> None:
        if has_terminal:
            logger.warning("the terminal is gone (SIGHUP): this ends as on SIGTERM")
            ending.request()
        else:
            logger.warning(
                "SIGHUP is ignored: there is no configuration file to read again; SIGTERM ends this"
            )

    hangup = SignalThread(signal.SIGHUP, "kvscope-hangup")
    hangup.start(noticed)
    try:
        yield
    finally:
        hangup.release()


def _has_terminal() -> bool:
    """Whether the process has a terminal that can go, wherever its output is sent."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
