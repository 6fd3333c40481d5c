"""Quietens uvicorn and asyncio: messages that clients can provoke are logged once a minute at
most."""

import asyncio
import logging

import h11

from kvscope_events.throttle import Throttle

_TO_A_CLIENT_THAT_HAS_GONE = "socket.send() raised exception."


class _Filter(logging.Filter):
    """For messages that a client can provoke as often as it likes."""

    def __init__(self) -> None:
        super().__init__()
        self._throttle = Throttle()

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, asyncio.CancelledError):
            return False  # the server stops, and ends a request itself
        if record.msg == _TO_A_CLIENT_THAT_HAS_GONE:
            return False
        what = str(record.msg).partition("\n")[0]
        if record.name == "asyncio" and isinstance(error, OSError | h11.ProtocolError):
            record.msg, record.args, record.exc_info = f"{what}: {error}", (), None
        return self._throttle.allow(f"{what} {type(error).__name__}")


_FILTER = _Filter()


def quieten() -> None:
    """Limit uvicorn and asyncio to each message once a minute. Idempotent."""
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).addFilter(_FILTER)
