"""Keys: the action of each, as data, and their names by the bytes that terminals send."""

from dataclasses import dataclass
from typing import Literal

Action = Literal[
    "quit",
    "help",
    "next_panel",
    "previous_panel",
    "next_engine",
    "previous_engine",
    "sort",
    "filter",
    "freeze",
    "up",
    "down",
    "page_up",
    "page_down",
    "first",
    "faster",
    "slower",
    "step",
    "step_back",
    "jump",
    "jump_back",
    "mark",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """Keys that do the same."""

    names: tuple[str, ...]
    action: Action
    label: str = ""
    """A word for the bottom line; empty: the help alone names it."""
    help: str
    recordings_only: bool = False


KEYS = (
    Key(names=("q",), action="quit", label="quit", help="Quit."),
    Key(names=("?", "h"), action="help", label="help", help="This help, and back."),
    Key(names=("tab",), action="next_panel", label="panel", help="The next panel comes first."),
    Key(names=("backtab",), action="previous_panel", help="The previous panel comes first."),
    Key(
        names=(" ",),
        action="freeze",
        label="freeze",
        help="Freeze what is shown, and go on. A recording: pause, and play.",
    ),
    Key(
        names=("right", "."),
        action="step",
        label="step",
        help="One step of the engine forward, and pause.",
        recordings_only=True,
    ),
    Key(
        names=("left", ","),
        action="step_back",
        help="One step back, and pause.",
        recordings_only=True,
    ),
    Key(
        names=("]",),
        action="jump",
        label="+10 s",
        help="Ten seconds forward.",
        recordings_only=True,
    ),
    Key(names=("[",), action="jump_back", help="Ten seconds back.", recordings_only=True),
    Key(
        names=("+", "="),
        action="faster",
        label="speed",
        help="Twice as fast.",
        recordings_only=True,
    ),
    Key(names=("-",), action="slower", help="Half as fast.", recordings_only=True),
    Key(
        names=("m",),
        action="mark",
        label="mark",
        help="To the next moment that the recorder marked.",
        recordings_only=True,
    ),
    Key(names=("s",), action="sort", label="sort", help="Sort the first panel by its next column."),
    Key(
        names=("/",),
        action="filter",
        label="filter",
        help="Show only rows with a text in them; Enter keeps it, Escape drops it.",
    ),
    Key(names=("e",), action="next_engine", label="engine", help="The next engine or server."),
    Key(names=("E",), action="previous_engine", help="The previous engine or server."),
    Key(names=("up", "k"), action="up", help="Scroll the first panel up."),
    Key(names=("down", "j"), action="down", help="Scroll the first panel down."),
    Key(names=("pageup",), action="page_up", help="Scroll it up by ten rows."),
    Key(names=("pagedown",), action="page_down", help="Scroll it down by ten rows."),
    Key(names=("home", "g"), action="first", help="Back to its first row."),
)
SHOWN = {
    **{" ": "space", "backtab": "shift-tab", "right": "→", "left": "←", "up": "↑", "down": "↓"},
}
"""Names of keys for people, where they differ."""
_SEQUENCES = {
    **{b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[C": "right", b"\x1b[D": "left"},
    **{b"\x1bOA": "up", b"\x1bOB": "down", b"\x1bOC": "right", b"\x1bOD": "left"},
    **{b"\x1b[Z": "backtab", b"\x1b[5~": "pageup", b"\x1b[6~": "pagedown"},
    **{b"\x1b[H": "home", b"\x1b[1~": "home", b"\x1bOH": "home"},
    **{b"\t": "tab", b"\r": "enter", b"\n": "enter", b"\x7f": "backspace", b"\x08": "backspace"},
}


def decoded(typed: bytes) -> list[str]:
    """Names of keys, or the characters themselves; unknown sequences are left out."""
    found = []
    while typed:
        for sequence, name in _SEQUENCES.items():
            if typed.startswith(sequence):
                found.append(name)
                typed = typed[len(sequence) :]
                break
        else:
            if typed[0] == 0x1B:
                end = _end_of_sequence(typed)
                found += ["escape"] if end == 1 else []
                typed = typed[end:]
            else:
                length = _length_of_character(typed[0])
                character = typed[:length].decode(errors="ignore")
                found += [character] if character.isprintable() and character else []
                typed = typed[length:]
    return found


def _end_of_sequence(typed: bytes) -> int:
    """The number of bytes of an escape sequence, which is 1 for the key itself."""
    if len(typed) == 1 or typed[1] == 0x1B:
        return 1
    if typed[1] not in b"[O":
        return 2
    for place in range(2, len(typed)):
        if 0x40 <= typed[place] <= 0x7E:
            return place + 1
    return len(typed)


def _length_of_character(first: int) -> int:
    return 4 if first >= 0xF0 else 3 if first >= 0xE0 else 2 if first >= 0xC0 else 1
