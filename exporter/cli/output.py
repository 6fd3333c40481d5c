"""Messages of all commands: one line for an error, one format of log lines."""

import logging
import sys
from contextlib import suppress

import typer

USAGE_ERROR = 2


def fail(problem: object) -> typer.Exit:
    """Write `kvscope: PROBLEM` to standard error; raise the result to leave with exit code 2."""
    with suppress(OSError):  # where standard error is full as well, the exit code says enough
        typer.echo(f"kvscope: {printable(str(problem))}", err=True)
    return typer.Exit(USAGE_ERROR)


def printable(text: str) -> str:
    """`?` for what would steer the terminal: servers choose the names of their models."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def configure_logging() -> None:
    """Log to standard error; from libraries only warnings and errors."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
    )
    for chatty in ("httpx", "httpcore", "uvicorn.access", "uvicorn.error"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
