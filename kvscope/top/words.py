"""Figures as words that fit into narrow columns; what is not known is a word as well."""

from collections.abc import Sequence

UNKNOWN = "unknown"
NOT_REPORTED = "not reported"
_BARS = "▁▂▃▄▅▆▇█"
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0


def count(value: float | None) -> str:
    """12,345 up to there, then 1.23M."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value < 99_999.5 else _shortened(value)


def short(value: float | None) -> str:
    """Three digits: 8.2, 999, 12.3k."""
    if value is None:
        return UNKNOWN
    if value < 9.95 and value != round(value):
        return f"{value:.1f}"
    return f"{value:.0f}" if value < 999.5 else _shortened(value)


def _shortened(value: float) -> str:
    for unit, size in (("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)):
        scaled = value / size
        if scaled < 999.5 or unit == "T":
            return f"{scaled:.{2 if scaled < 9.995 else 1 if scaled < 99.95 else 0}f}{unit}"
    raise AssertionError("the last unit takes every value")


def share(value: float | None) -> str:
    """A ratio in percent."""
    if value is None:
        return UNKNOWN
    percent = 100 * value
    if 0 < percent < 0.95:
        return f"{max(0.1, percent):.1f} %"
    return f"{percent:.0f} %"


def seconds(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    if value < 0.0995:
        return f"{1000 * value:.0f} ms"
    if value < _MINUTE:
        return f"{value:.2f} s" if value < 9.995 else f"{value:.0f} s"
    if value < _HOUR:
        return f"{value / _MINUTE:.0f} min"
    return f"{value / _HOUR:.1f} h" if value < 2 * _DAY else f"{value / _DAY:.0f} d"


def size(value: float | None) -> str:
    """Bytes, in binary units as the drivers have them."""
    if value is None:
        return UNKNOWN
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1023.5 or unit == "TiB":
            return (
                f"{value:.0f} {unit}"
                if unit == "B" or abs(value) >= 99.95
                else f"{value:.1f} {unit}"
            )
        value /= 1024
    raise AssertionError("the last unit takes every value")


def spark(values: Sequence[float | None], width: int, top: float | None = None) -> str:
    """The last `width` values as bars from 0 to `top`, or their maximum; a gap where unknown."""
    shown = values[-width:]
    known = [value for value in shown if value is not None]
    highest = top if top is not None else max(known, default=0.0)
    bars = "".join(" " if value is None else _bar(value, highest) for value in shown)
    return bars.rjust(width)


def _bar(value: float, highest: float) -> str:
    if highest <= 0:
        return _BARS[0]
    return _BARS[min(len(_BARS) - 1, max(0, round(value / highest * (len(_BARS) - 1))))]
