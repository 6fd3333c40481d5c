"""Rows in columns of a terminal: in too little width, the least important columns are left out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from kvscope_events.printable import one_line

_GAP = "  "


class Column(NamedTuple):
    """One figure of each row."""

    title: str
    figure: Callable[[Any], Any]
    """A number, by which rows can be sorted, the largest first; a text; or None."""
    show: Callable[[Any], str] = str
    """For all but texts."""
    left_out: int = 0
    """The column with the highest number is left out first; 0: never."""
    left: bool = False
    style: Callable[[Any], str] = lambda figure: ""

    def cell(self, row: Any) -> str:
        figure = self.figure(row)
        return one_line(figure if isinstance(figure, str) else self.show(figure))

    def is_number(self, row: Any) -> bool:
        return isinstance(self.figure(row), int | float)

    def order(self, row: Any) -> float:
        return float(self.figure(row)) if self.is_number(row) else float("-inf")


@dataclass(frozen=True, slots=True)
class Table:
    """Columns, and the rows that they show."""

    columns: Sequence[Column]
    rows: Sequence[Any]
    empty: str
    """A sentence for a table without rows."""

    @property
    def sorts(self) -> list[str]:
        """Columns that have numbers."""
        known = [column for column in self.columns if any(map(column.is_number, self.rows))]
        return [column.title for column in known]

    def draw(self, width: int, sort: str = "", pattern: str = "") -> list[Text]:
        """The titles, and below them the rows that have the pattern in a cell, by a column."""
        rows = list(self.rows)
        titles = [column.title for column in self.columns]
        if sort in titles:
            place = titles.index(sort)
            rows.sort(key=self.columns[place].order, reverse=True)
            titles[place] = f"{sort}▾"
        drawn = [(row, [column.cell(row) for column in self.columns]) for row in rows]
        wanted = pattern.casefold()
        drawn = [(row, cells) for row, cells in drawn if wanted in "  ".join(cells).casefold()]
        if not drawn:
            said = self.empty if not rows else f"nothing has {pattern!r} in it"
            return [Text(said, "dim")]
        texts = zip(titles, *(cells for _, cells in drawn), strict=True)
        rooms = _fitting(self.columns, [max(map(cell_len, each)) for each in texts], width)
        lines = [Text("", "dim"), *(Text() for _ in drawn)]
        for place, room in rooms.items():
            column = self.columns[place]
            lines[0].append(_padded(titles[place], room, column.left))
            for line, (row, cells) in zip(lines[1:], drawn, strict=True):
                style = column.style(column.figure(row))
                line.append(_padded(cells[place], room, column.left), style)
        for line in lines:
            line.rstrip()
        return lines


def _fitting(columns: Sequence[Column], rooms: list[int], width: int) -> dict[int, int]:
    """The columns that have room, and their widths; the first one is cut where it must be."""
    kept = dict(enumerate(rooms))
    while True:
        over = sum(kept.values()) + len(_GAP) * (len(kept) - 1) - width
        out = max(kept, key=lambda place: columns[place].left_out)
        if over <= 0 or not columns[out].left_out:
            kept[0] = max(1, kept[0] - max(0, over))
            return kept
        del kept[out]


def _padded(text: str, room: int, left: bool) -> str:
    length = cell_len(text)
    if length > room:
        return set_cell_size(text, max(0, room - 1)) + "…" + _GAP
    space = " " * (room - length)
    return (text + space if left else space + text) + _GAP
