"""Sizes as people write them: GB is 10^9, GiB is 2^30; no guesses, and a bound for each."""

import re

from kvscope_events.printable import one_line

MAX_LAYERS = 4096
"""Layers, since each one is examined; the deepest models have a few hundred."""
MAX_SIZE = 2**40
"""Heads, widths, positions, sequences, tokens."""
MAX_PARAMETERS = 1e18
MAX_BYTES = 2**60


def at_most(most: int, **numbers: int) -> None:
    """Raises ValueError for the first of `numbers`, by the name of its option."""
    for name, number in numbers.items():
        if number > most:
            raise ValueError(
                f"--{name.replace('_', '-')} must be at most {most:,}, "
                f"got {one_line(str(number), 40)}"
            )


GIB = 2**30

_UNITS = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": GIB,
    "TiB": 2**40,
}
_BINARY = ("TiB", "GiB", "MiB", "KiB")
_MAX_TEXT = 40
"""Maximum characters of an amount, more than any needs."""
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)")


def parse_bytes(text: str) -> int:
    """`141GB`, `139.8 GiB`, or plain bytes. Raises ValueError for any other unit, `80G` too."""
    match = _QUANTITY.fullmatch(text.strip()) if len(text) <= _MAX_TEXT else None
    if match is None:
        text = one_line(text, _MAX_TEXT)
        raise ValueError(f"{text!r} is not an amount of memory: write 141GB, 139.8GiB, or bytes")
    number, unit = match.groups()
    if unit and unit not in _UNITS:
        raise ValueError(f"{text!r}: unknown unit {unit!r}, expected one of {', '.join(_UNITS)}")
    if not unit and "." in number:
        raise ValueError(f"{text!r}: a fraction needs a unit, {number}GiB or {number}GB")
    amount = round(float(number) * _UNITS[unit]) if unit else int(number)
    if amount <= 0:
        raise ValueError(f"{text!r}: memory must be positive")
    if amount > MAX_BYTES:
        raise ValueError(f"{text!r}: more memory than any machine has")
    return amount


def format_bytes(amount: int) -> str:
    """The amount in the largest binary unit that leaves at least 1; whole, or with two decimals."""
    for unit in _BINARY:
        if abs(amount) >= _UNITS[unit]:
            number = f"{amount / _UNITS[unit]:,.2f}".rstrip("0").rstrip(".")
            return f"{number} {unit}"
    return f"{amount:,} B"
