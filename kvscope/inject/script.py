"""The commands of a shell's script: their words, and the operators between them.

No shell: variables, substitutions and templates stay as they are written, each within one word.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

_SHELLS = ("sh", "bash", "dash", "ash", "zsh")
_DEEPEST = r"\([^()]*\)"
_DEEPER = rf"\((?:[^()]|{_DEEPEST})*\)"
_NESTED = rf"\((?:[^()]|{_DEEPER})*\)"
_PIECE = re.compile(
    rf"""
    (?P<joined> \\\r?\n)
    | (?P<blank> [ \t\r]+ | (?<![^\s;&|()])\#[^\n]*)
    | (?P<kept> [$<>]{_NESTED} | \$\{{[^}}]*\}} | `[^`]*` | \{{\{{.*?\}}\}})
    | (?P<redirection> &>>? | [<>]+[&|]?)
    | (?P<end> [;&|()\n]+)
    | '(?P<literal> [^']*)'
    | "(?P<quoted> (?:[^"\\$] | \\. | \${_NESTED} | \$(?!\())*)"
    | \\(?P<escaped> .)
    | (?P<plain> [^\s;&|()<>'"\\`$#{{]+ | [$#{{] | \s)
    """,
    re.VERBOSE | re.DOTALL,
)
_ROUGH = re.compile(r"(?P<blank>[^\S\n]+)|(?P<end>[;&|()\n]+)|(?P<plain>[^\s;&|()]+)")
"""For a script whose quotes only a shell understands."""
_IN_QUOTES = re.compile(r"\\([$`\"\\])|\\\r?\n")
_BACKGROUND = re.compile(r"(?<![&|])&(?!&)")


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command, with the words of its shell's grammar (`then`, `else`) before its own."""

    words: list[str]
    end: str = ""
    """The operators behind it, a line end among them; empty at the end of the script."""


def script_of(words: Sequence[str]) -> str | None:
    """The text that a shell among the words runs with -c."""
    shell = False
    for place, word in enumerate(words[:-1]):
        if PurePath(word).name in _SHELLS:
            shell = True
        elif shell and re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word):
            return _after_options(words[place:])
    return None


def commands_of(script: str) -> list[Command]:
    """All commands, some of them without a word."""
    found = _read(script, _PIECE)
    return found or _read(re.sub(r"\\\r?\n", " ", script), _ROUGH) or []


def are_alternatives(commands: Sequence[Command]) -> bool:
    """Whether the last of them runs only where the first does not, or has failed."""
    if any(_BACKGROUND.search(command.end) for command in commands[:-1]):
        return False
    return any(";;" in command.end or "||" in command.end for command in commands[:-1]) or any(
        command.words[:1] in (["else"], ["elif"]) for command in commands[1:]
    )


def _after_options(words: Sequence[str]) -> str | None:
    """The first that is not an option: a shell may have more of them, with -c and after it."""
    rest = iter(words)
    for word in rest:
        if word == "--":
            return next(rest, None)
        if not word.startswith(("-", "+")):
            return word
        if word.endswith("o"):  # the name of an option follows
            next(rest, None)
    return None


def _read(script: str, pattern: re.Pattern[str]) -> list[Command] | None:
    """None: a quote is not closed."""
    commands: list[Command] = []
    words: list[str] = []
    word: str | None = None
    place = 0
    while place < len(script):
        piece = pattern.match(script, place)
        if piece is None:
            return None
        place = piece.end()
        kind = str(piece.lastgroup)
        text = piece[kind]
        if kind == "joined":
            continue
        if kind not in ("blank", "redirection", "end"):
            text = _IN_QUOTES.sub(r"\1", text) if kind == "quoted" else text
            word = (word or "") + text
            continue
        if word is not None:
            words.append(word)
            word = None
        if kind == "redirection":
            words.append(text)
        elif kind == "end":
            commands.append(Command(words, text))
            words = []
    return [*commands, Command([*words, word] if word is not None else words)]
