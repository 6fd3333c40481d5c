"""Text of other people on one line of ours: no control characters, no surrogates, no novels."""

QUOTED_CHARACTERS = 200
"""Length for quotations of a server or a file, where nothing longer is of use."""


def quoted(text: str) -> str:
    """`one_line` of a usual length."""
    return one_line(text, QUOTED_CHARACTERS)


def one_line(text: str, most: int | None = None) -> str:
    """`text` with white space folded and unprintable characters escaped, cut at `most` characters.

    Safe to write to any stream that takes UTF-8.
    """
    if most is not None:
        text = text[: most + 1]  # before the work, which costs by the character
    folded = " ".join(text.split())
    printable = "".join(char if char.isprintable() else _escaped(char) for char in folded)
    if most is None or len(printable) <= most:
        return printable
    return f"{printable[: most - 1]}…"


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
