"""Durations as people write them: 90s, 10m, 2h, 7d, or a number of seconds."""

import math
import re
from collections.abc import Callable

import typer

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
FORMS = "90s, 10m or 2h"


def seconds_of(text: str) -> float:
    """Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as {FORMS}")
    number, unit = match.groups()
    return float(number) * _UNITS[unit or "s"]


def shown(seconds: float) -> str:
    """In the largest unit of which it is a whole number."""
    for unit in "dhm":
        if seconds and seconds % _UNITS[unit] == 0:
            return f"{seconds / _UNITS[unit]:g}{unit}"
    return f"{seconds:g}s"


def duration(
    least: float | None = None, most: float | None = None
) -> Callable[[str | float], float]:
    """A parser of an option's value, in seconds."""
    low, high = least or 0.0, math.inf if most is None else most

    def parse(given: str | float) -> float:
        try:
            seconds = seconds_of(given) if isinstance(given, str) else given
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        if seconds < low:
            raise typer.BadParameter(f"must be at least {shown(low)}")
        if seconds > high:
            raise typer.BadParameter(f"must be at most {shown(high)}")
        return seconds

    return parse
