"""Numbers, shares, times and sizes as people read them; what is not known is a word as well."""

import time

UNKNOWN = "unknown"
NOT_REPORTED = "not reported"
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
    for unit, scale in (("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)):
        scaled = value / scale
        if scaled < 999.5 or unit == "T":
            return f"{scaled:.{2 if scaled < 9.995 else 1 if scaled < 99.95 else 0}f}{unit}"
    raise AssertionError("the last unit takes every value")


def share(value: float | None, digits: int = 0) -> str:
    """A ratio in percent: 47 %; less than one with a digit more."""
    if value is None:
        return UNKNOWN
    percent = 100 * value
    if not digits and 0 < percent < 0.95:
        return f"{max(0.1, percent):.1f} %"
    return f"{percent:.{digits}f} %"


def seconds(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    if value < 0.0995:
        return f"{short(1000 * value)} ms"
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
            is_whole = unit == "B" or (unit in ("KiB", "MiB") and abs(value) >= 99.95)
            digits = 0 if is_whole else 1
            return f"{value:,.{digits}f} {unit}"
        value /= 1024
    raise AssertionError("the last unit takes every value")


def clock(unix: float) -> str:
    """The time of day in UTC."""
    return time.strftime("%H:%M:%S", time.gmtime(unix))
