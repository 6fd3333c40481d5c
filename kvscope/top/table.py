"""Rows in columns of a terminal: in too little width, the least important columns are left out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

_GAP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One figure of each row."""

    title: str
    cell: Callable[[Any], str]
    """Text without characters that steer a terminal."""
    order: Callable[[Any], Any] | None = None
    """Key to sort by, the largest first; None: it cannot be sorted by."""
    left_out: int = 0
    """The column with the highest number is left out first; 0: never."""
    right: bool = True
    style: Callable[[Any], str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Columns, and the rows that they show."""

    columns: Sequence[Column]
    rows: Sequence[Any]
    empty: str
    """A sentence for a table without rows."""

    @property
    def sorts(self) -> list[str]:
        return [column.title for column in self.columns if column.order is not None]


def shown_rows(table: Table, sort: str, pattern: str) -> list[Any]:
    """Rows with the pattern in one of their cells, sorted by a column; else as they came."""
    wanted = pattern.casefold()
    rows = [
        row
        for row in table.rows
        if not wanted or any(wanted in column.cell(row).casefold() for column in table.columns)
    ]
    for column in table.columns:
        if column.title == sort and column.order is not None:
            order = column.order
            # Rows without the figure stand last.
            rows.sort(key=lambda row: (order(row) is not None, order(row) or 0), reverse=True)
    return rows


def draw(
    table: Table, width: int, height: int, *, sort: str = "", pattern: str = "", first: int = 0
) -> list[Text]:
    """At most `height` lines: the titles, then the rows from number `first` on."""
    rows = shown_rows(table, sort, pattern)
    if not rows:
        sentence = table.empty if not table.rows else f"nothing has {pattern!r} in it"
        return [Text(sentence, "dim")]
    first = max(0, min(first, len(rows) - max(1, height - 1)))
    rows = rows[first : first + max(0, height - 1)]
    columns, widths = _fitting(table.columns, rows, width)
    lines = [Text()]
    for place, (column, room) in enumerate(zip(columns, widths, strict=True)):
        mark = "▾" if column.title == sort else ""
        title = _padded(column.title + mark, room, right=column.right)
        lines[0].append(_gap(place) + title, "bold" if mark else "dim")
    for row in rows:
        line = Text()
        for place, (column, room) in enumerate(zip(columns, widths, strict=True)):
            style = column.style(row) if column.style is not None else ""
            line.append(_gap(place) + _padded(column.cell(row), room, right=column.right), style)
        lines.append(line)
    return lines


def _gap(place: int) -> str:
    return " " * _GAP if place else ""


def _fitting(
    columns: Sequence[Column], rows: Sequence[Any], width: int
) -> tuple[list[Column], list[int]]:
    """The columns that have room, and their widths; the first one is cut where it must be."""
    kept = list(columns)
    while True:
        rooms = [
            max(cell_len(column.title) + 1, *(cell_len(column.cell(row)) for row in rows))
            for column in kept
        ]
        over = sum(rooms) + _GAP * (len(kept) - 1) - width
        if over <= 0:
            return kept, rooms
        out = max(kept, key=lambda column: column.left_out)
        if not out.left_out:
            rooms[0] = max(1, rooms[0] - over)
            return kept, rooms
        kept.remove(out)


def _padded(text: str, room: int, *, right: bool) -> str:
    length = cell_len(text)
    if length > room:
        return set_cell_size(text, max(0, room - 1)) + "…"
    return " " * (room - length) + text if right else text + " " * (room - length)
