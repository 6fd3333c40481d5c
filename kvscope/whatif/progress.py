"""Progress through a long file, on standard error: a line on a terminal, else occasional lines."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import typer
from rich.console import Console

_FIRST_AFTER_SECONDS = 1.0
_LINE_EVERY_SECONDS = 5.0
"""Interval without a terminal."""


@contextmanager
def showing_progress(what: str) -> Iterator[Callable[[int], None]]:
    """Yields a function to be called with the number of `what` that were read."""
    console = Console(stderr=True)
    began = time.monotonic()
    if not console.is_terminal:
        yield _print_now_and_then(what, began)
        return
    with console.status("reading") as status:

        def show(count: int) -> None:
            if time.monotonic() - began > _FIRST_AFTER_SECONDS:
                status.update(f"{count:,} {what}")

        yield show


def _print_now_and_then(what: str, began: float) -> Callable[[int], None]:
    next_line = began + _LINE_EVERY_SECONDS

    def show(count: int) -> None:
        nonlocal next_line
        now = time.monotonic()
        if now >= next_line:
            next_line = now + _LINE_EVERY_SECONDS
            with suppress(OSError):  # the curve is good even if its progress cannot be shown
                typer.echo(f"{now - began:.0f} s: {count:,} {what} read", err=True)

    return show
