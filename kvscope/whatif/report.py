"""A curve as a table for people and as a document, and the frame of all reports of what-ifs."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvscope.whatif.findings import Findings
from kvscope_events.printable import printable
from kvscope_exporter import words

_HERE = "◀ the pool"


def document(files: Sequence[Path], found: Findings) -> dict[str, Any]:
    """The whole curve; unknown values are null."""
    facts = vars(found).copy()
    points, pool = facts.pop("points"), facts.pop("pool")
    return {
        "file": str(files[0]),
        **facts,
        "pool": None if pool is None else vars(pool),
        "verdict": found.verdict,
        "curve": [point._asdict() for point in points],
        "not_modelled": found.not_modelled,
    }


def show(console: Console, files: Sequence[Path], found: Findings) -> None:
    """Show the table, between its subject and its limitations."""
    tables = [_table(found)] if found.points else []
    frame(console, _title(files[0], found), tables, found.verdict, found.doubts, found.not_modelled)


def frame(
    console: Console,
    title: str,
    content: Iterable[Table | Text],
    verdict: str | None,
    doubts: Iterable[str],
    not_modelled: Iterable[str],
) -> None:
    """Show the content of a report, between its subject and its limitations."""
    console.print(Text(printable(title), "bold"))
    for part in content:
        console.print(part)
    if verdict is not None:
        console.print(Text(verdict, "bold"))
    for doubt in doubts:
        console.print(Text(f"Note: {printable(doubt)}.", "yellow"))
    console.print(Text("Not modelled:", "dim"))
    for text in not_modelled:
        console.print(Text(f"  - {text}", "dim"))


def _title(file: Path, found: Findings) -> str:
    what = "requests" if found.kind == "trace" else "lookups"
    title = f"{file.name}: {found.lookups:,} {what}, {found.queried_blocks:,} blocks looked up"
    if found.distinct_blocks is not None:
        title += f", {found.distinct_blocks:,} different ones"
    if found.format is not None:
        title += f"\na trace of the dialect {found.format}, blocks of {found.block_tokens} tokens"
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
        ratio = words.share(point.hit_ratio, 1)
        bound = "≥ " if point.capacity_blocks in found.lower_bounds else ""
        cells = [
            f"{point.capacity_blocks:,}",
            f"{bound}{point.hit_blocks:,}",
            f"{point.queried_blocks:,}",
            ratio if point.hit_ratio is None else bound + ratio,
        ]
        if found.pool is not None:
            usable = found.pool.usable_blocks
            cells.append(f"{point.capacity_blocks / usable:.3g}")
            cells.append(_HERE if point.capacity_blocks == usable else "")
        table.add_row(*cells)
    return table
