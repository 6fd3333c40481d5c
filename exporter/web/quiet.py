"""Keeps uvicorn and asyncio quiet: what clients can provoke is logged once a minute at most."""

import asyncio
import logging
from typing import Any

from exporter.seldom import Seldom


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
