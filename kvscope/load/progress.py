"""Shows the progress of `kvscope load` on standard error: a bar on a terminal, else some lines."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import typer
from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as ProgressBar

from kvscope.load import Progress

_LINE_EVERY_SECONDS = 5.0
"""Interval of progress lines without a terminal."""


@contextmanager
def showing_progress() -> Iterator[Callable[[Progress], None]]:
    """Yields a function to be called with each new state inside the block."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _print_now_and_then()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with ProgressBar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def show(progress: Progress) -> None:
            share = progress.share_done
            bar.update(
                task,
                description=_line(progress),
                completed=share or 0.0,
                total=None if share is None else 1.0,
            )

        yield show


def _print_now_and_then() -> Callable[[Progress], None]:
    next_line = time.monotonic() + _LINE_EVERY_SECONDS

    def show(progress: Progress) -> None:
        nonlocal next_line
        if time.monotonic() >= next_line:
            next_line += _LINE_EVERY_SECONDS
            with suppress(OSError):  # a run whose progress cannot be shown still has a report
                typer.echo(_line(progress), err=True)

    return show


def _line(progress: Progress) -> str:
    rate = progress.output_tokens / progress.elapsed_seconds if progress.elapsed_seconds else 0.0
    return (
        f"{progress.elapsed_seconds:.0f} s: {progress.ok:,} ok, {progress.failed:,} failed, "
        f"{progress.in_flight:,} in flight, {rate:,.0f} output tok/s"
    )
