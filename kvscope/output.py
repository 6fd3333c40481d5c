"""Messages of all commands: one line for an error, one format of log lines."""

import logging
import sys
from contextlib import suppress
from typing import Any

import typer

from kvscope_events.printable import printable

USAGE_ERROR = 2
MAX_MESSAGE = 4096
"""Maximum characters of one log line."""


def fail(problem: object) -> typer.Exit:
    """Write `kvscope: PROBLEM` to standard error; raise the result to leave with exit code 2."""
    with suppress(OSError):  # if standard error is full as well, the exit code says enough
        typer.echo(f"kvscope: {printable(str(problem))}", err=True)
    return typer.Exit(USAGE_ERROR)


class LineFormatter(logging.Formatter):
    """One line per message, whatever a peer put into it: peers choose names and reasons."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        message = record.message
        if len(message) > MAX_MESSAGE:
            message = f"{message[:MAX_MESSAGE]}… ({len(message):,} characters)"
        record.message = printable(message, keep="")
        return super().formatMessage(record)

    def formatException(self, info: Any) -> str:
        return printable(super().formatException(info))


def configure_logging() -> None:
    """Log to standard error; from libraries only warnings and errors."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for chatty in ("httpx", "httpcore", "uvicorn.access", "uvicorn.error"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
