"""Everything that panels draw from: one engine's reading, its course, and its neighbours."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rich.cells import cell_len
from rich.text import Text

from exporter.answers.question import Question
from kvscope.top.course import Values
from kvscope.top.figures import EngineName, Figures
from kvscope.top.follower import Seen
from kvscope.top.reading import EngineReading, ServerReading, Unknown
from kvscope.top.table import Table

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One engine, and the place that it was seen at."""

    seen: Seen
    server: ServerReading
    engine: EngineReading

    @property
    def values(self) -> Values:
        return self.seen.courses.get(self.engine.key, {})

    @property
    def figures(self) -> Figures:
        return self.engine.figures

    def answer(self, question: Question[T]) -> T | Unknown:
        found: T | Unknown = self.engine.answers.get(question.name, Unknown("it was not asked"))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The engine that is shown, among all of them."""

    all: Sequence[Watched]
    chosen: int

    @property
    def here(self) -> Watched:
        return self.all[self.chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A part of the screen, in a size that the screen has room for."""

    key: str
    title: str
    help: str
    least: int
    """Lines below its title with which it says something."""
    most: int
    """Lines beyond which it would be empty."""
    note: Callable[[Situation], str]
    """Sums, beside the title."""
    body: Callable[[Situation, int], Table | list[Text]]
    """Rows, or lines of the given width."""


def watched(places: Sequence[Seen]) -> list[Watched]:
    """All engines in the order of their places."""
    return [
        Watched(seen=seen, server=server, engine=engine)
        for seen in places
        for server in seen.servers
        for engine in server.engines
    ]


def situation_of(engines: Sequence[Watched], chosen: tuple[str, EngineName] | None) -> Situation:
    """The first engine is shown if the chosen one is not there."""
    keys = [each.engine.key for each in engines]
    return Situation(all=engines, chosen=keys.index(chosen) if chosen in keys else 0)


def unknown_lines(unknown: Unknown, width: int) -> list[Text]:
    """A reason instead of figures."""
    return wrapped(f"unknown: {unknown.reason}", width, "dim")


def wrapped(text: str, width: int, style: str = "", indent: int = 0) -> list[Text]:
    """Lines that break between words. The text must be printable."""
    lines = textwrap.wrap(
        text, max(20, width), subsequent_indent=" " * indent, break_long_words=True
    )
    return [Text(line, style) for line in lines]


def cropped(line: Text, width: int) -> Text:
    """A copy of at most that width, which an ellipsis shows."""
    if cell_len(line.plain) <= width:
        return line.copy()
    line = line.copy()
    line.truncate(max(0, width), overflow="ellipsis")
    return line
