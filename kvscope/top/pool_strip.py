"""The pool as a strip: its blocks by state, the cached ones by the time since their last use.

The order is that in which blocks are given up: what sequences hold first, then the cached ones from
the latest used to the next victim, and what is free last.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.text import Text

from exporter import words
from exporter.answers.residency import RESIDENCY
from kvscope.top.reading import Unknown
from kvscope.top.situation import Watched


@dataclass(frozen=True, slots=True)
class Part:
    """Blocks of one state and age."""

    name: str
    glyph: str
    style: str
    blocks: float


_RESERVED = ("reserved", "x", "color(245)")
_ACTIVE = ("active", "█", "color(208)")
_CACHED = (
    # Up to this time since the last use; None: longer.
    (10.0, "▓", "color(51)"),
    (60.0, "▓", "color(39)"),
    (600.0, "▒", "color(33)"),
    (None, "░", "color(62)"),
)
_CACHED_NAME = "cached "
_UNTIMED = ("cached", "▒", "color(39)")
_FREE = ("free", "·", "color(245)")
_REST = ("not active", "·", "color(245)")


def parts(watched: Watched) -> list[Part]:
    """The pool's parts in order; empty: the engine reports no pool."""
    states = watched.figures.by("state", "kvscope_kv_blocks")
    if not states:
        active = watched.figures.value("kvscope_kv_active_ratio")
        if active is None:
            return []
        # A server that reports shares only is drawn as a pool of a thousand blocks.
        return [Part(*_ACTIVE, 1000 * active), Part(*_REST, 1000 * (1 - active))]
    found = []
    if states.get("reserved"):
        found.append(Part(*_RESERVED, states["reserved"]))
    found.append(Part(*_ACTIVE, states.get("active", 0.0)))
    found += _cached(watched, states.get("cached", 0.0))
    found.append(Part(*_FREE, states.get("free", 0.0)))
    return found


def _cached(watched: Watched, blocks: float) -> list[Part]:
    """By age where it is known; page and answer are of two moments, and the page's sum counts."""
    answer = watched.answer(RESIDENCY)
    if isinstance(answer, Unknown) or not answer.idle.blocks:
        return [Part(*_UNTIMED, blocks)]
    ages: list[float] = [0.0] * len(_CACHED)
    for one in answer.idle.classes:
        place = next(
            i
            for i, (bound, _, _) in enumerate(_CACHED)
            if bound is None or (one.up_to_seconds is not None and one.up_to_seconds <= bound)
        )
        ages[place] += one.blocks
    scale = blocks / (answer.idle.blocks + answer.idle.unknown_blocks)
    found: list[Part] = []
    lower = 0.0
    for (bound, glyph, style), age in zip(_CACHED, ages, strict=True):
        name = f"<{_short_age(bound)}" if bound is not None else f">{_short_age(lower)}"
        found.append(Part(f"{_CACHED_NAME}{name}", glyph, style, age * scale))
        lower = bound or lower
    if answer.idle.unknown_blocks:
        found.append(
            Part(
                f"{_CACHED_NAME}for an unknown time",
                *_UNTIMED[1:],
                answer.idle.unknown_blocks * scale,
            )
        )
    return found


def _short_age(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds < 60 else f"{seconds / 60:.0f}m"


def strip(found: Sequence[Part], width: int, height: int) -> list[Text]:
    """Rows of cells; every part that has blocks has a cell."""
    cells = _shared_out([part.blocks for part in found], width * height)
    line = Text(no_wrap=True)
    for part, number in zip(found, cells, strict=True):
        line.append(part.glyph * number, part.style)
    return [line[row * width : (row + 1) * width] for row in range(height)]


def _shared_out(amounts: Sequence[float], cells: int) -> list[int]:
    """By largest remainders, at least one for what is there."""
    whole = sum(amounts)
    if not whole:
        return [0] * len(amounts)
    exact = [cells * amount / whole for amount in amounts]
    given = [max(int(share), 1) if share > 0 else 0 for share in exact]
    order = sorted(range(len(exact)), key=lambda i: int(exact[i]) - exact[i])
    while sum(given) < cells:
        for place in order:
            if amounts[place] and sum(given) < cells:
                given[place] += 1
    while sum(given) > cells:
        given[given.index(max(given))] -= 1
    return given


def legend_of(
    found: Sequence[Part], width: int, show: Callable[[float], str] = words.short
) -> list[Text]:
    """Glyph, name and amount of each part, on as many lines as that takes.

    Ages that no cached block has are left out, and the word is there once.
    """
    lines = [Text(no_wrap=True)]
    is_cached = False
    for part in found:
        name = part.name
        if name.startswith(_CACHED_NAME):
            if not part.blocks:
                continue
            name = name.removeprefix(_CACHED_NAME) if is_cached else name
            is_cached = True
        entry = f" {name} {show(part.blocks)}"
        if lines[-1] and len(lines[-1]) + len(entry) + 3 > width:
            lines.append(Text(no_wrap=True))
        lines[-1].append("  " if lines[-1] else "")
        lines[-1].append(part.glyph, part.style)
        lines[-1].append(entry)
    return lines
