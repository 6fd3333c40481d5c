"""`--once`: the panels below each other, as long as they are."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from kvscope.top.fixed_lines import headline, pool, title, trouble
from kvscope.top.follower import Seen
from kvscope.top.panels import PANELS
from kvscope.top.panels.why import verdict
from kvscope.top.situation import Panel, Situation, watched, wrapped
from kvscope.top.table import Table, draw
from kvscope.top.view import View

_ROWS = 20
"""Rows of a table: `--json` has all of them."""


def report(places: Sequence[Seen], width: int, interval: float) -> Iterator[Text]:
    """Lines of at most `width` cells, engine by engine."""
    engines = watched(places)
    for seen in places:
        if seen.problem is None:  # otherwise it goes to standard error
            yield from trouble(seen, width)
    view = View(panels=PANELS)
    for number, here in enumerate(engines):
        if number:
            yield Text()
        situation = Situation(all=engines, chosen=number)
        sentence, style = verdict(here)
        lines = wrapped(sentence, width, indent=2)
        lines[0].stylize(style, 0, 1)
        yield from lines
        yield title(here, 1, view, width, f"over {interval:g} s")
        yield from pool(here, width, 1)
        yield from headline(here, width)
        for panel in PANELS:
            if panel.key != "engines":
                yield Text()
                yield from _panel(panel, situation, width)


def _panel(panel: Panel, situation: Situation, width: int) -> Iterator[Text]:
    note = panel.note(situation)
    yield Text(panel.title, "bold").append(f"  {note}" if note else "", "not bold")
    drawn = panel.body(situation, width)
    yield from draw(drawn, width, _ROWS + 1) if isinstance(drawn, Table) else drawn
