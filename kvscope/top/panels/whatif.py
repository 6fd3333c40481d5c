"""Regret, and the hits of pools of other sizes with the present one marked."""

from rich.text import Text

from exporter import words
from exporter.answers.whatif import WHATIF, WhatIf, WhatIfPoint
from kvscope.top.reading import Unknown
from kvscope.top.situation import Panel, Situation, Watched, unknown_lines

_WINDOW = "5m"
_SCALES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, None)
"""Those on the page of metrics; None: infinite."""
_HERE = 1.0
_BOUNDS = {(False, False): "", (True, False): "≥", (False, True): "≤", (True, True): "~"}
"""Before a hit rate: whether it is a lower bound, and an upper one."""


def _regret(watched: Watched) -> str:
    figures = watched.figures
    tokens = figures.value("kvscope_prefix_cache_regret_tokens_total")
    retention = figures.value("kvscope_kv_retention_seconds")
    shortfall = figures.value("kvscope_kv_pool_shortfall_blocks")
    regret = words.NOT_REPORTED if tokens is None else f"{words.short(tokens)} tokens"
    found = [f"regret {regret}"]
    if retention is not None:
        found.append(f"remembers {words.seconds(retention)}")
    if shortfall is not None:
        found.append(f"short of {words.short(shortfall)} blocks")
    return ", ".join(found)


def _note(situation: Situation) -> str:
    return _regret(situation.here)


def _points(answer: WhatIf) -> list[WhatIfPoint]:
    curve = next(curve for curve in answer.curves if curve.window == _WINDOW)
    by_scale = {point.scale: point for point in curve.points}
    return [by_scale[scale] for scale in _SCALES if scale in by_scale]


def _body(situation: Situation, width: int) -> list[Text]:
    answer = situation.here.answer(WHATIF)
    if isinstance(answer, Unknown):
        return unknown_lines(answer, width)
    points = _points(answer)
    if not points or points[0].hit_ratio is None:
        return [Text("No prompt was looked up in the last five minutes.", "dim")]
    lines = [Text(f"{'pool':>6}{'blocks':>9}{'memory':>10}{'hits':>7}", "dim")]
    present = next((p.hit_ratio for p in points if p.scale == _HERE), None)
    for point in points:
        lines.append(_line(point, present, width))
    return lines


def _line(point: WhatIfPoint, present: float | None, width: int) -> Text:
    is_here = point.scale == _HERE
    scale = "any" if point.scale is None else f"{point.scale:g} x"
    blocks = "infinite" if point.capacity_blocks is None else words.short(point.capacity_blocks)
    memory = "" if point.capacity_bytes is None else words.size(point.capacity_bytes)
    hits = f"{_BOUNDS[point.is_lower_bound, point.is_upper_bound]}{words.share(point.hit_ratio)}"
    line = Text(f"{scale:>6}{blocks:>9}{memory:>10}{hits:>7}  ", "bold" if is_here else "")
    room = max(0, width - len(line) - 16)
    ratio = point.hit_ratio or 0.0
    line.append("█" * round(room * ratio), "color(208)" if is_here else "color(39)")
    if is_here:
        line.append(" ◀ you are here", "bold")
    elif present is not None and point.hit_ratio is not None:
        line.append(f" {100 * (ratio - present):+.0f} points", "dim")
    return line


REGRET = Panel(
    key="whatif",
    title="What if",
    help="Prompt tokens computed again because their blocks had been evicted (regret), the age of "
    "the next victim, and the hit rate of the last five minutes in pools of other sizes.",
    least=9,
    most=9,
    note=_note,
    body=_body,
)
