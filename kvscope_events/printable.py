"""Foreign text made safe to print: characters that steer a terminal or break a line are escaped.

Peers choose the names of their models, their errors and the content of their files.
"""

QUOTED_CHARACTERS = 200
"""Length limit for text from a server or a file, where more would not help."""


def printable(text: str, keep: str = "\n") -> str:
    """`text` with unprintable characters escaped, except those in `keep`.

    Safe to write to any stream that takes UTF-8.
    """
    return "".join(c if c.isprintable() or c in keep else _escaped(c) for c in text)


def one_line(text: str, most: int | None = None) -> str:
    """`text` made printable, with white space folded, cut at `most` characters."""
    if most is not None:
        text = text[: most + 1]  # before the work, which costs by the character
    line = printable(" ".join(text.split()), keep="")
    return line if most is None or len(line) <= most else f"{line[: most - 1]}…"


def quoted(text: str) -> str:
    """`one_line` of a usual length."""
    return one_line(text, QUOTED_CHARACTERS)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
