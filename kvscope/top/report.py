"""`--once`: everything that the screen has, engine by engine and panel by panel."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from kvscope.top.follower import PlaceStatus
from kvscope.top.head import head, numbers, trouble
from kvscope.top.panels import ENGINES, PANELS
from kvscope.top.situation import Situation, situation_of
from kvscope.top.table import Table

_ROWS = 20
"""Rows of a table: `-o json` has all of them."""


def report(places: Sequence[PlaceStatus], width: int, interval: float) -> Iterator[Text]:
    """Lines of at most `width` cells."""
    for line in _lines(places, width, interval):
        line.truncate(width, overflow="ellipsis")
        yield line


def _lines(places: Sequence[PlaceStatus], width: int, interval: float) -> Iterator[Text]:
    engines = situation_of(places).all
    for seen in places:
        if seen.problem is None:  # otherwise it goes to standard error
            yield from trouble(seen, width)
    for number, here in enumerate(engines):
        yield from [Text()] if number else []
        yield from head([], Situation([here], 0), width, f"over {interval:g} s")
        yield from numbers(here, width)
        for panel in PANELS:
            if panel is not ENGINES:
                note, drawn = panel.draw(Situation(engines, number), width)
                yield Text()
                yield Text().append(panel.title, "bold").append(f"  {note}" if note else "")
                yield from drawn.draw(width)[: _ROWS + 1] if isinstance(drawn, Table) else drawn
