"""A curve for people and for programs: progress, a table with its doubts, a JSON document."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvscope.whatif.findings import Findings
from kvscope_events.printable import printable

_FIRST_AFTER_SECONDS = 1.0
_LINE_EVERY_SECONDS = 5.0
"""Interval without a terminal."""


@contextmanager
def showing_progress(what: str) -> Iterator[Callable[[int], None]]:
    """Progress on standard error: a line on a terminal, else occasional lines.

    Yields a function to be called with the number of `what` that were read.
    """
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


HERE = "◀ the pool"


def document(file: Path, found: Findings) -> dict[str, Any]:
    """The whole curve; unknown values are null."""
    pool = found.pool
    return {
        "file": str(file),
        "kind": found.kind,
        "lookups": found.lookups,
        "queried_blocks": found.queried_blocks,
        "distinct_blocks": found.distinct_blocks,
        "seconds": found.seconds,
        "pool": None
        if pool is None
        else {
            "usable_blocks": pool.usable_blocks,
            "block_size": pool.block_size,
            "hit_blocks": pool.hit_blocks,
        },
        "verdict": found.verdict,
        "curve": [point._asdict() for point in found.points],
        "lower_bounds": list(found.lower_bounds),
        "doubts": list(found.doubts),
        "not_modelled": list(found.not_modelled),
    }


def show(console: Console, file: Path, found: Findings) -> None:
    """Show the table, between its subject and its limitations."""
    console.print(Text(printable(_title(file, found)), "bold"))
    if found.points:
        console.print(_table(found))
    if found.verdict is not None:
        console.print(Text(found.verdict, "bold"))
    for doubt in found.doubts:
        console.print(Text(f"Note: {printable(doubt)}.", "yellow"))
    console.print(Text("Not modelled:", "dim"))
    for text in found.not_modelled:
        console.print(Text(f"  - {text}", "dim"))


def _title(file: Path, found: Findings) -> str:
    what = "requests" if found.kind == "trace" else "lookups"
    title = f"{file.name}: {found.lookups:,} {what}, {found.queried_blocks:,} blocks looked up"
    if found.distinct_blocks is not None:
        title += f", {found.distinct_blocks:,} different ones"
    if found.seconds is not None:
        title += f", {found.seconds:,.0f} s"
    if found.pool is not None:
        title += (
            f"\na pool of {found.pool.usable_blocks:,} blocks of {found.pool.block_size} tokens "
            f"found {found.pool.hit_blocks:,} of them"
        )
    return title


def _table(found: Findings) -> Table:
    table = Table()
    for name in ("capacity, blocks", "hit blocks", "queried blocks", "hit ratio"):
        table.add_column(name, justify="right")
    if found.pool is not None:
        table.add_column("of the pool", justify="right")
        table.add_column("note")
    for point in found.points:
        ratio = point.hit_ratio
        bound = "≥ " if point.capacity_blocks in found.lower_bounds else ""
        cells = [
            f"{point.capacity_blocks:,}",
            f"{bound}{point.hit_blocks:,}",
            f"{point.queried_blocks:,}",
            "unknown" if ratio is None else f"{bound}{100 * ratio:.1f} %",
        ]
        if found.pool is not None:
            usable = found.pool.usable_blocks
            cells.append(f"{point.capacity_blocks / usable:.3g}")
            cells.append(HERE if point.capacity_blocks == usable else "")
        table.add_row(*cells)
    return table
