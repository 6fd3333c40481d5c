"""A frame: the fixed lines, then as many panels as the screen has room for, in columns."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from kvscope.top.fixed_lines import help_lines, key_line, top_lines, trouble
from kvscope.top.follower import Seen
from kvscope.top.situation import Panel, Situation, cropped, situation_of, watched
from kvscope.top.table import Table, draw
from kvscope.top.view import View

COLUMN_WIDTH = 78
"""Width with which every panel says all that matters."""
_GUTTER = 3
_FAIR = 12
"""Lines that every panel gets before one gets more."""


def frame(
    places: Sequence[Seen], view: View, width: int, height: int, interval: float
) -> list[Text]:
    """Exactly `height` lines of at most `width` cells."""
    bottom = [key_line(view, width)]
    if view.help:
        lines = help_lines(view, width)
    else:
        engines = watched(places)
        top = top_lines(places, engines, view, width, height, interval)
        lines = top
        if engines:
            situation = situation_of(engines, view.engine)
            room = height - len(top) - len(bottom)
            lines = top + body(situation, view, width, room)
            if situation.here.seen.problem is not None:
                _fade(lines, behind=len(trouble(situation.here.seen, width)))
    lines = lines[: height - len(bottom)]
    lines += [Text()] * (height - len(bottom) - len(lines)) + bottom
    return [cropped(line, width) for line in lines]


def body(situation: Situation, view: View, width: int, height: int) -> list[Text]:
    """Panels in order, in columns that are as full as they get; the first has what is left."""
    num_columns = max(1, (width + _GUTTER) // (COLUMN_WIDTH + _GUTTER))
    room = (width - _GUTTER * (num_columns - 1)) // num_columns
    panels = [p for p in view.ordered if p.key != "engines" or len(situation.all) > 1]
    columns = _shared_out(panels, situation, room, num_columns, height)
    drawn = [
        [line for panel, lines in column for line in _panel(panel, situation, view, room, lines)]
        for column in columns
    ]
    rows = []
    for place in range(max((len(column) for column in drawn), default=0)):
        row = Text()
        for number, column in enumerate(drawn):
            line = cropped(column[place], room) if place < len(column) else Text()
            row.append_text(line)
            if number < len(drawn) - 1:
                row.append(" " * (room - cell_len(line.plain) + _GUTTER))
        rows.append(row)
    return rows


def _shared_out(
    panels: Sequence[Panel], situation: Situation, width: int, num_columns: int, height: int
) -> list[list[tuple[Panel, int]]]:
    """Panels by column, and the lines below the title of each.

    First as many as have room with their least, then each gets lines up to a fair number, and at
    last the upper ones all they can fill.
    """
    wants = {panel.key: min(panel.most, _length(panel, situation, width)) for panel in panels}
    columns: list[dict[Panel, int]] = [{} for _ in range(num_columns)]
    left = [height] * num_columns
    for panel in panels:
        place = left.index(max(left))
        least = min(panel.least, wants[panel.key])
        if left[place] > least:
            columns[place][panel] = least
            left[place] -= least + 1
    for column, spare in zip(columns, left, strict=True):
        for most in (_FAIR, height):
            for panel, lines in column.items():
                more = max(0, min(spare, min(most, wants[panel.key]) - lines))
                column[panel] = lines + more
                spare -= more
    return [list(column.items()) for column in columns]


def _fade(lines: list[Text], behind: int) -> None:
    """Old values are seen to be old."""
    for line in lines[behind:]:
        line.stylize("dim not bold")


def _length(panel: Panel, situation: Situation, width: int) -> int:
    drawn = panel.body(situation, width)
    return len(drawn.rows) + 1 if isinstance(drawn, Table) else len(drawn)


def _panel(panel: Panel, situation: Situation, view: View, width: int, height: int) -> list[Text]:
    """Its title, and exactly `height` lines."""
    is_first = panel is view.panels[view.panel]
    number = view.panels.index(panel) + 1
    title = Text(f"{number} {panel.title} ", "bold reverse" if is_first else "bold underline")
    note = panel.note(situation)
    if note:
        title.append(f" {note}", "not bold not reverse not underline")
    if is_first and (view.pattern or view.is_typing):
        title.append(f"  /{view.pattern}{'▏' if view.is_typing else ''}", "bold")
    drawn = panel.body(situation, width)
    if isinstance(drawn, Table):
        lines = draw(
            *(drawn, width, height),
            sort=view.sorts.get(panel.key, ""),
            pattern=view.pattern if is_first else "",
            first=view.first if is_first else 0,
        )
    else:
        first = max(0, min(view.first, len(drawn) - height)) if is_first else 0
        lines = drawn[first : first + height]
    return [cropped(title, width), *lines, *([Text()] * (height - len(lines)))]


def sortable(situation: Situation, panels: Sequence[Panel], width: int) -> dict[str, list[str]]:
    """The columns by which each panel can be sorted."""
    found = {}
    for panel in panels:
        drawn = panel.body(situation, width)
        found[panel.key] = drawn.sorts if isinstance(drawn, Table) else []
    return found
