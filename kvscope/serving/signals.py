"""Ctrl-C and SIGTERM of commands that serve: an orderly end, from the first moment to the last."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn


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
def signals_end() -> Iterator[Ending]:
    """Inside the block, signals end the server in an orderly way, even while it is being set up.

    uvicorn has handlers of its own while it runs, and afterwards raises the signal that ended it
    once more, which has no further effect here.
    """
    ending = Ending()

    def end(number: int, frame: FrameType | None) -> None:
        ending.request()

    previous = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ending
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
