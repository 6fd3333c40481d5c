"""What a server says, for a terminal: one line, of bounded length, without control characters."""

MAX_CHARACTERS = 200


def one_line(text: str) -> str:
    """Spaces for line ends, `?` for what would steer the terminal."""
    words = " ".join(text[: 2 * MAX_CHARACTERS].split())
    return "".join(c if c.isprintable() else "?" for c in words[:MAX_CHARACTERS])
