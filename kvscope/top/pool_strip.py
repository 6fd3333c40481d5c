"""The pool as a strip: its blocks by state, the cached ones by the time since their last use.

The order is that in which blocks are given up: what sequences hold first, then the cached ones from
the latest used to the next victim, and what is free last.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.text import Text

from kvscope.top.reading import UnknownAnswer
from kvscope.top.situation import WatchedEngine
from kvscope_exporter import words
from kvscope_exporter.answers.residency import RESIDENCY


class Part(NamedTuple):
    """Blocks of one state and age, or bytes of one kind."""

    name: str
    glyph: str
    style: str
    amount: float


_ACTIVE = ("active", "█", "color(208)")
_CACHED = (
    # Up to this time since the last use.
    (10.0, ("cached <10s", "▓", "color(51)")),
    (60.0, ("cached <1m", "▓", "color(39)")),
    (600.0, ("cached <10m", "▒", "color(33)")),
    (float("inf"), ("cached >10m", "░", "color(62)")),
)
_GREY = "color(245)"


def parts(watched: WatchedEngine) -> list[Part]:
    """The pool's parts in order; empty: the engine reports no pool."""
    states = watched.figures.by("state", "kvscope_kv_blocks")
    if states:
        return [
            Part("reserved", "x", _GREY, states.get("reserved", 0.0)),
            Part(*_ACTIVE, states.get("active", 0.0)),
            *_cached(watched, states.get("cached", 0.0)),
            Part("free", "·", _GREY, states.get("free", 0.0)),
        ]
    active = watched.figures.value("kvscope_kv_active_ratio")
    if active is None:
        return []
    return [Part(*_ACTIVE, active), Part("not active", "·", _GREY, 1 - active)]


def _cached(watched: WatchedEngine, blocks: float) -> list[Part]:
    """By age where it is known; page and answer are of two moments, and the page's sum counts."""
    answer = watched.engine.answers[RESIDENCY.name]
    if isinstance(answer, UnknownAnswer) or not answer.idle.blocks:
        return [Part("cached", "▒", "color(39)", blocks)]
    scale = blocks / (answer.idle.blocks + answer.idle.unknown_blocks)
    ages = [0.0] * len(_CACHED)
    for one in answer.idle.classes:
        up_to = float("inf") if one.up_to_seconds is None else one.up_to_seconds
        ages[next(i for i, (bound, _) in enumerate(_CACHED) if up_to <= bound)] += one.blocks
    found = [Part(*part, age * scale) for (_, part), age in zip(_CACHED, ages, strict=True)]
    untimed = answer.idle.unknown_blocks * scale
    return [*found, Part("cached for an unknown time", "▒", "color(39)", untimed)]


def strip(found: Sequence[Part], width: int) -> Text:
    """A row of cells; every part that is there has one."""
    scale = width / (sum(part.amount for part in found) or 1.0)
    cells = [max(1, round(part.amount * scale)) if part.amount else 0 for part in found]
    if any(cells):
        cells[cells.index(max(cells))] += width - sum(cells)
    styled = ((part.glyph * number, part.style) for part, number in zip(found, cells, strict=True))
    return Text.assemble(*styled)


def legend_of(
    found: Sequence[Part], show: Callable[[float], str] = words.short, width: int = 1000
) -> list[Text]:
    """Glyph, name and amount of each part that is there, on as many lines as that takes."""
    lines = [Text()]
    for part in found:
        # The ages of cached blocks have the word once.
        name = part.name.removeprefix("cached ") if "cached" in lines[-1].plain else part.name
        entry = f" {name} {show(part.amount)}"
        if lines[-1] and lines[-1].cell_len + len(entry) + 3 > width:
            lines.append(Text())
        if part.amount or part.name in ("active", "free"):
            lines[-1].append("  " if lines[-1] else "").append(part.glyph, part.style)
            lines[-1].append(entry)
    return lines
