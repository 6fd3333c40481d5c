"""Regret, and the hits of pools of other sizes with the present one marked."""

from rich.text import Text

from kvscope.top.figures import Figures
from kvscope.top.situation import Panel, Situation
from kvscope_exporter import words
from kvscope_exporter.answers.whatif import WHATIF, WhatIf, WhatIfPoint

_WINDOW = "5m"
_SCALES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, None)
"""Those on the page of metrics; None: infinite."""
_BOUNDS = {(False, False): "", (True, False): "≥", (False, True): "≤", (True, True): "~"}
"""Before a hit rate: whether it is a lower bound, and an upper one."""


def _regret(figures: Figures) -> str:
    tokens = figures.value("kvscope_prefix_cache_regret_tokens_total")
    retention = figures.value("kvscope_kv_retention_seconds")
    shortfall = figures.value("kvscope_kv_pool_shortfall_blocks")
    regret = words.NOT_REPORTED if tokens is None else f"{words.short(tokens)} tokens"
    remembers = "" if retention is None else f", remembers {words.seconds(retention)}"
    short = "" if shortfall is None else f", short of {words.short(shortfall)} blocks"
    return f"regret {regret}{remembers}{short}"


def _body(situation: Situation, answer: WhatIf, width: int) -> tuple[str, list[Text]]:
    curve = next(curve for curve in answer.curves if curve.window == _WINDOW)
    by_scale = {point.scale: point for point in curve.points}
    points = [by_scale[scale] for scale in _SCALES if scale in by_scale]
    lines = [Text(f"{'pool':>6}{'blocks':>9}{'memory':>10}{'hits':>7}", "dim")]
    if not points or points[0].hit_ratio is None:
        lines = [Text("No prompt was looked up in the last five minutes.", "dim")]
    else:
        present = by_scale[1.0].hit_ratio if 1.0 in by_scale else None
        lines += [_line(point, present, width) for point in points]
    return _regret(situation.here.figures), lines


def _line(point: WhatIfPoint, present: float | None, width: int) -> Text:
    is_here, ratio = point.scale == 1.0, point.hit_ratio or 0.0
    scale = "any" if point.scale is None else f"{point.scale:g} x"
    blocks = "infinite" if point.capacity_blocks is None else words.short(point.capacity_blocks)
    memory = "" if point.capacity_bytes is None else words.size(point.capacity_bytes)
    hits = f"{_BOUNDS[point.is_lower_bound, point.is_upper_bound]}{words.share(point.hit_ratio)}"
    line = Text(f"{scale:>6}{blocks:>9}{memory:>10}{hits:>7}  ", "bold" if is_here else "")
    room = max(0, width - len(line) - 16)
    line.append("█" * round(room * ratio), "color(208)" if is_here else "color(39)")
    if is_here:
        line.append(" ◀ you are here", "bold")
    elif present is not None and point.hit_ratio is not None:
        line.append(f" {100 * (ratio - present):+.0f} points", "dim")
    return line


REGRET = Panel(
    "What if",
    "Prompt tokens computed again because their blocks had been evicted (regret), the age of the "
    "next victim, and the hit rate of the last five minutes in pools of other sizes.",
    *(_body, WHATIF.name),
)
