"""Everything that panels draw from: one engine's reading, its course, and its neighbours."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.text import Text

from kvscope.top.course import Values
from kvscope.top.figures import Figures
from kvscope.top.follower import Key, PlaceStatus
from kvscope.top.reading import EngineReading, ServerReading, UnknownAnswer
from kvscope.top.table import Table


@dataclass(frozen=True, slots=True)
class WatchedEngine:
    """One engine, and the place that it was seen at."""

    seen: PlaceStatus
    server: ServerReading
    engine: EngineReading

    @property
    def values(self) -> Values:
        return self.seen.courses.get(self.engine.key, {})

    @property
    def figures(self) -> Figures:
        return self.engine.figures


@dataclass(frozen=True, slots=True)
class Situation:
    """The engine that is shown, among all of them."""

    all: Sequence[WatchedEngine]
    chosen: int

    @property
    def here(self) -> WatchedEngine:
        return self.all[self.chosen]


class Panel(NamedTuple):
    """A part of the screen."""

    title: str
    help: str
    body: Callable[[Situation, Any, int], tuple[str, Table | list[Text]]]
    """Sums, and rows or lines of the given width, from the answer."""
    answer: str = ""
    """Its name; empty: it needs none."""

    def draw(self, situation: Situation, width: int) -> tuple[str, Table | list[Text]]:
        """As `body`; without the answer, the reason for that."""
        if not self.answer:
            return self.body(situation, None, width)
        answer = situation.here.engine.answers[self.answer]
        if isinstance(answer, UnknownAnswer):
            return "", wrapped(f"unknown: {answer.reason}", width, "dim")
        return self.body(situation, answer, width)


def situation_of(places: Sequence[PlaceStatus], chosen: Key | None = None) -> Situation:
    """All engines in the order of their places; the first is shown if the chosen one is gone."""
    engines = [
        WatchedEngine(seen, server, engine)
        for seen in places
        for server in seen.servers
        for engine in server.engines
    ]
    keys = [each.engine.key for each in engines]
    return Situation(engines, keys.index(chosen) if chosen in keys else 0)


def wrapped(text: str, width: int, style: str = "", indent: int = 0) -> list[Text]:
    """Lines that break between words. The text must be printable."""
    lines = textwrap.wrap(text, max(20, width), subsequent_indent=" " * indent)
    return [Text(line, style) for line in lines]
