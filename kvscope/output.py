"""Output of all commands: errors and log lines on one line each, to a stream that may fail."""

import errno
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Annotated, Any

import typer

from kvscope_events.printable import printable


class Output(StrEnum):
    """Forms of a printed answer."""

    TEXT = "text"
    JSON = "json"

    @property
    def is_json(self) -> bool:
        return self is Output.JSON


OutputOption = Annotated[
    Output,
    typer.Option("--output", "-o", metavar="text|json", help="Form of what is printed."),
]
USAGE_ERROR = 2
EXIT_SIGNALLED = 128
"""Added to the signal's number, as a shell does: 130 after Ctrl-C."""
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


EXIT_NO_READER = 1
"""Exit status of typer and rich when the reader, such as `head`, has gone."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@contextmanager
def output_errors() -> Iterator[None]:
    """Wraps a whole command: a reader that has gone ends it silently, a full disk with one line.

    Never with a traceback, not even when Python flushes at its very end. Raises SystemExit.
    """
    if sys.stdout is None:  # closed by our parent process; stays open until Python ends
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        # An error with a file's name is not one of standard output.
        if error.filename is not None or error.errno not in (errno.EPIPE, *_FULL):
            raise
        _discard_what_is_left()
        if error.errno == errno.EPIPE:
            raise SystemExit(EXIT_NO_READER) from None
        code = fail(f"standard output: {error.strerror}").exit_code
        raise SystemExit(code) from None


def _discard_what_is_left() -> None:
    """Discard what is still buffered, or Python would fail on it again at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
