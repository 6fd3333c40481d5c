"""Recognises a vLLM or an SGLang by its container's command, else by its image's entry point."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath

from kvscope.inject.tree import LeftAloneError
from kvscope.run.api_server import api_server_of, known_server
from kvscope_events.vocabulary import ServerKind

NAMES: dict[ServerKind, str] = {"vllm": "vLLM", "sglang": "SGLang"}
_SHELLS = ("sh", "bash", "dash", "ash", "zsh")
_ENTRY_POINT = re.compile(r"(?:^|-)vllm-openai(?:-|$)")
"""Images that start a vLLM without a command: vLLM's own, LMCache's, and copies of them."""
_SETS_PATH = re.compile(r"(?:^|[\s;&(])PYTHONPATH=(?![^\s;&]*\$\{?PYTHONPATH)")
_ISOLATED = re.compile(r"-[a-zA-Z]*[IE][a-zA-Z]*")


@dataclass(frozen=True, slots=True)
class Server:
    """A server as its container starts it."""

    kind: ServerKind
    url: str | None
    """Base URL of its own page, seen from its pod; None: not known, or not to be read."""
    remark: str
    """Its address, or why that is not known."""


def server_in(
    words: Sequence[str], image: str, *, has_command: bool, is_named: bool = False
) -> Server | None:
    """The server that a container starts; None: its command is not that of one.

    words: command and arguments; is_named: taken for a server whatever it runs. Raises
    LeftAloneError if the server would not load the observer.
    """
    script = _script_of(words)
    command = [*words, *_split(script)] if script is not None else list(words)
    if not has_command and script is None and _ENTRY_POINT.search(name_of(image)):
        command = ["vllm", "serve", *words]
    known = known_server(command)
    if known is None:
        if not is_named:
            return None
        guess: ServerKind = "sglang" if "sglang" in image else "vllm"
        return Server(guess, None, "its page is not read, since its command names no port")
    if script is not None and _SETS_PATH.search(script):
        raise LeftAloneError("its script sets PYTHONPATH: write PYTHONPATH=...:$PYTHONPATH there")
    _check_interpreter(command)
    kind = known[0]
    url = api_server_of(command, is_here=False)
    if url is None:
        why = "has no page of metrics, or its port is not in its command"
        return Server(kind, None, f"its page is not read: it {why}")
    if url.startswith("https:"):
        return Server(kind, None, "its page is not read, since it is https")
    return Server(kind, url, url)


def name_of(image: str) -> str:
    """Last part of an image's name, without tag and digest."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def _script_of(words: Sequence[str]) -> str | None:
    """The text that a shell among the words runs with -c."""
    shell = False
    for place, word in enumerate(words[:-1]):
        if PurePath(word).name in _SHELLS:
            shell = True
        elif shell and re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word):
            return _after_options(words[place:])
    return None


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


def _split(script: str) -> list[str]:
    """The words of a shell's script, with operators as words of their own."""
    joined = re.sub(r"\\\r?\n", " ", script)
    lexer = shlex.shlex(joined, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:  # quotes that only a shell understands
        return re.split(r"[\s;&|()]+", joined)


def _check_interpreter(command: Sequence[str]) -> None:
    for word, following in pairwise(command):
        isolated = _ISOLATED.fullmatch(following)
        if isolated and re.match(r"python[\d.]*$", PurePath(word).name):
            raise LeftAloneError(f"its Python ignores PYTHONPATH ({following})")
