"""Things that the documents ask a reader to type: commands, addresses, options and variables."""

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

from kvscope.cli.app import every_command
from tests.repo.checkout import ROOT, project_files, relative

PAGES = tuple(
    path
    for path in project_files()
    if path.suffix == ".md"
    and path.name != "CHANGELOG.md"
    and not path.is_relative_to(ROOT / "tools")
)
"""For users and contributors; a tool's own page describes the tool alone."""
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`]+)`")
_OPERATORS = "|&;()<>"
_PROGRAM = re.compile(r"(?:\S*/)?kvscope")
_COMMAND = re.compile(r"[a-z]+")
_ADDRESS = re.compile(
    r"(?P<host>127\.0\.0\.1|localhost|HOST|POD-IP|SERVER|(?<=[\s`'\"(])):(?P<port>\d{2,5})\b"
    r"(?P<path>/[\w./{}-]*)?"
)


COMMANDS = every_command()
GROUPS = {name.split()[0] for name in COMMANDS if " " in name}


class Line(NamedTuple):
    """A command line of kvscope: its page, the command's words, what follows."""

    page: str
    command: str
    arguments: tuple[str, ...]

    @property
    def id(self) -> str:
        return f"{self.page}: kvscope {self.command} {shlex.join(self.arguments)}"


class Address(NamedTuple):
    """A port, and what is asked there; a page may set ports of its own, as by --port."""

    page: str
    port: int
    path: str


def blocks(text: str) -> list[str]:
    """Code between fences, each line of shell whole."""
    return [re.sub(r"\\\n\s*", " ", found[3]) for found in _BLOCK.finditer(text)]


def spans(text: str) -> list[str]:
    """Text between two backticks, outside of blocks."""
    return [" ".join(span.split()) for span in _SPAN.findall(_BLOCK.sub("", text))]


def command_lines() -> Iterator[Line]:
    """Every `kvscope COMMAND …` of the blocks."""
    for page in PAGES:
        for block in blocks(page.read_text()):
            for line in block.splitlines():
                for words in _calls(line.strip().removeprefix("$ ")):
                    yield _line(relative(page), words)


def commands_in_text() -> Iterator[Line]:
    """Every `kvscope COMMAND …` between two backticks; its values may stand for others."""
    for page in PAGES:
        for span in spans(page.read_text()):
            for words in _calls(span):
                yield _line(relative(page), words)


def addresses() -> Iterator[Address]:
    """Ports of this machine, or of a host that stands for another, and the paths asked there."""
    for page in PAGES:
        for found in _ADDRESS.finditer(page.read_text()):
            yield Address(relative(page), int(found["port"]), (found["path"] or "").rstrip("."))


def _line(page: str, words: list[str]) -> Line:
    size = 2 if words[0] in GROUPS else 1
    return Line(page, " ".join(words[:size]), tuple(words[size:]))


def _calls(line: str) -> Iterator[list[str]]:
    """The words of each call of kvscope in a line of shell, also of one between quotes."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=_OPERATORS)
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:  # no line of shell, such as a log's with an apostrophe
        return
    for number, word in enumerate(words):
        before = words[number - 1] if number else ";"
        is_program = before == "--" or set(before) <= set(_OPERATORS) or "=" in before
        if _PROGRAM.fullmatch(word) and is_program:
            call = list(takewhile(_is_word, words[number + 1 :]))
            if call and _COMMAND.fullmatch(call[0]):
                yield call
        elif "kvscope " in word and word != line:
            yield from _calls(word.replace("$(", ";("))


def _is_word(text: str) -> bool:
    return not set(text) <= set(_OPERATORS)
