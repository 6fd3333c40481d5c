"""The largest numbers that sizes are calculated from: no product leaves the range of floats.

Far above any model and any machine; what is larger is a mistake, and named.
"""

from kvscope_events.printable import one_line

MAX_LAYERS = 4096
"""Layers, each of which is looked at; the deepest models have some hundred."""
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
