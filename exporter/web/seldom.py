"""Says the same thing once a minute at most: what clients cause must not fill a log."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

LOG_EVERY_SECONDS = 60.0
MAX_KINDS = 256
"""Kinds that are remembered; then all are forgotten, and may be said again."""


class Seldom:
    """Remembers when each kind was last said. For any thread: the worst is a line too many."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said: dict[str, float] = {}

    def is_due(self, kind: str) -> bool:
        """Whether this kind may be said now; the answer true is remembered."""
        now = self._clock()
        said = self._said.get(kind)
        if said is not None and now - said < LOG_EVERY_SECONDS:
            return False
        if len(self._said) >= MAX_KINDS:
            self._said.clear()
        self._said[kind] = now
        return True


class _Filter(logging.Filter):
    """For uvicorn's messages, which a client can provoke as often as it likes."""

    def __init__(self) -> None:
        super().__init__()
        self._seldom = Seldom()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError):
            return False  # the server stops, and ends a request itself
        return self._seldom.is_due(f"{record.msg}")


_FILTER = _Filter()


def quieten_uvicorn() -> None:
    """From now on uvicorn says each of its messages once a minute. Idempotent."""
    logging.getLogger("uvicorn.error").addFilter(_FILTER)


def quieten(loop: asyncio.AbstractEventLoop) -> None:
    """The same for what this event loop reports about its connections."""
    seldom = Seldom()

    def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if seldom.is_due(f"{context.get('message')} {type(context.get('exception')).__name__}"):
            loop.default_exception_handler(context)

    loop.set_exception_handler(report)
