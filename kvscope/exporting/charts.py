"""Charts over recorded time, as SVG that a page holds inline; colours come from its style."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from math import floor, log10
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement

_WIDTH, _HEIGHT = 520, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 510, 10, 146
_TICK_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400)
_MOST_TICKS = 6
_LINES = ("c0", "c1")
_LAYERS = ("c0", "c3", "c2")
"""Classes of the style."""

Points = Sequence[tuple[int, float | None]]
"""Unix times in nanoseconds, with values; None interrupts the line."""


class Line(NamedTuple):
    """A figure over time."""

    name: str
    points: Points


class Period(NamedTuple):
    """The time of all charts of a page, in Unix nanoseconds."""

    begins_ns: int
    ends_ns: int
    moments: Sequence[tuple[int, str]]
    """Drawn as vertical lines, with what happened then."""

    def x(self, at_ns: int) -> float:
        share = (at_ns - self.begins_ns) / max(1, self.ends_ns - self.begins_ns)
        return _LEFT + (_RIGHT - _LEFT) * share


def line_chart(
    title: str,
    lines: Sequence[Line],
    period: Period,
    shown: Callable[[float], str],
    most: float | None = None,
) -> Element:
    """shown: writes a value. most: the upper end of the axis; None: that of the values."""
    values = [value for line in lines for _, value in line.points if value is not None]
    top = most or _round_up(max(values, default=0.0))
    keys = [(line.name, colour) for line, colour in zip(lines, _LINES, strict=False)]
    figure, chart = _figure(title, keys, period, top, shown)
    for line, (_, colour) in zip(lines, keys, strict=True):
        path = _path(line.points, period, top)
        SubElement(chart, "path", {"class": f"line {colour}", "d": path})
    _draw_moments(chart, period)
    return figure


def stacked_chart(
    title: str, layers: Sequence[Line], period: Period, shown: Callable[[float], str]
) -> Element:
    """Layers from the bottom up; all have the same times."""
    rows = list(zip(*(line.points for line in layers), strict=True))
    sums = [[value or 0.0 for _, value in row] for row in rows]
    top = max(map(sum, sums), default=0.0) or 1.0
    keys = [(line.name, colour) for line, colour in zip(layers, _LAYERS, strict=False)]
    figure, chart = _figure(title, keys, period, top, shown)
    for begin, end in _stretches(rows):
        times = [row[0][0] for row in rows[begin:end]]
        for number, (_, colour) in enumerate(keys):
            upper = [sum(each[: number + 1]) for each in sums[begin:end]]
            lower = [sum(each[:number]) for each in sums[begin:end]]
            outline = [*zip(times, upper, strict=True)]
            outline += reversed([*zip(times, lower, strict=True)])
            corners = " ".join(f"{period.x(t):.1f},{_y(v, top):.1f}" for t, v in outline)
            SubElement(chart, "polygon", {"class": f"area {colour}", "points": corners})
    _draw_moments(chart, period)
    return figure


def _stretches(rows: Sequence[tuple[tuple[int, float | None], ...]]) -> list[tuple[int, int]]:
    """Rows without an unknown value, from begin to end."""
    stretches, begin = [], 0
    for end in range(len(rows) + 1):
        if end == len(rows) or any(value is None for _, value in rows[end]):
            if end > begin:
                stretches.append((begin, end))
            begin = end + 1
    return stretches


def _figure(
    title: str,
    keys: Sequence[tuple[str, str]],
    period: Period,
    top: float,
    shown: Callable[[float], str],
) -> tuple[Element, Element]:
    """keys: names and colours of what is drawn."""
    figure = Element("figure")
    caption = SubElement(figure, "figcaption")
    caption.text = title
    if len(keys) > 1:
        for name, colour in keys:
            SubElement(caption, "span", {"class": f"key {colour}"}).text = name
    chart = SubElement(
        figure, "svg", {"viewBox": f"0 0 {_WIDTH} {_HEIGHT}", "role": "img", "aria-label": title}
    )
    for share in (0.0, 0.5, 1.0):
        y = _BOTTOM - (_BOTTOM - _TOP) * share
        place = {"x1": str(_LEFT), "x2": str(_RIGHT), "y1": f"{y:.1f}", "y2": f"{y:.1f}"}
        SubElement(chart, "line", {"class": "grid", **place})
        _text(chart, _LEFT - 6, y + 4, "end", shown(top * share))
    for at_ns, label in ticks(period.begins_ns, period.ends_ns):
        _text(chart, min(period.x(at_ns), _RIGHT - 12), _HEIGHT - 8, "middle", label)
    return figure, chart


def _draw_moments(chart: Element, period: Period) -> None:
    for at_ns, text in period.moments:
        x = f"{period.x(at_ns):.1f}"
        mark = SubElement(
            chart,
            "line",
            {"class": "moment", "x1": x, "x2": x, "y1": str(_TOP), "y2": str(_BOTTOM)},
        )
        SubElement(mark, "title").text = text


def _text(chart: Element, x: float, y: float, anchor: str, text: str) -> None:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}
    SubElement(chart, "text", place).text = text


def _path(points: Points, period: Period, top: float) -> str:
    parts = []
    values = [None, *(value for _, value in points), None]
    for (at_ns, value), before, after in zip(points, values, values[2:], strict=False):
        if value is not None:
            parts.append(
                f"{'M' if before is None else 'L'}{period.x(at_ns):.1f} {_y(value, top):.1f}"
            )
            if before is None and after is None:
                parts.append("m-1.5 0h3")  # alone, it would not be seen
    return "".join(parts)


def _y(value: float, top: float) -> float:
    return _BOTTOM - (_BOTTOM - _TOP) * min(1.0, max(0.0, value / top))


def ticks(begins_ns: int, ends_ns: int) -> list[tuple[int, str]]:
    """Round times of day, at most six."""
    seconds = (ends_ns - begins_ns) / 1e9
    step = next((s for s in _TICK_SECONDS if seconds / s <= _MOST_TICKS), _TICK_SECONDS[-1])
    step_ns, form = step * 10**9, "%H:%M:%S" if step < 60 else "%H:%M"
    first = -(-begins_ns // step_ns) * step_ns
    return [
        (at_ns, datetime.fromtimestamp(at_ns / 1e9, UTC).strftime(form))
        for at_ns in list(range(first, ends_ns + 1, step_ns))[:_MOST_TICKS]
    ]


def _round_up(value: float) -> float:
    """The next of 1, 2, 3, 4, 6, 8, 10, 20, …"""
    if value <= 0:
        return 1.0
    scale = 10.0 ** floor(log10(value))
    return next(step * scale for step in (1, 2, 3, 4, 6, 8, 10) if step * scale >= value * 0.999)
