"""Recognises a vLLM or an SGLang by its container's command, else by its image's entry point."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePath
from typing import Any

from kvscope.inject.script import Command, are_alternatives, commands_of, script_of
from kvscope.inject.tree import LeftAloneError
from kvscope.run.api_server import api_server_of, known_server
from kvscope_events.vocabulary import ServerKind

NAMES: dict[ServerKind, str] = {"vllm": "vLLM", "sglang": "SGLang"}
_ENTRY_POINT = re.compile(r"(?:^|-)vllm-openai(?:-|$)")
"""Images that start a vLLM without a command: vLLM's own, LMCache's, and copies of them."""
_SERVERS_IMAGE = re.compile(r"vllm|sglang")
_LAUNCHERS = (
    (
        re.compile(r"-m (dynamo\.(?:vllm|sglang))\b"),
        "{} starts the engine in its own process, where no observer has been tried. Watch it by "
        "Dynamo's page and KV events (docs/internals/kv-events.md); to observe it all the same",
    ),
    (
        re.compile(r"(nvcr\.io/nim/\S+)"),
        "{} chooses its engine when it starts. Watch NIM by its page (kvscope sidecar --url); if "
        "its log shows a vLLM",
    ),
)
"""Programs that start an engine themselves, and what works with them."""
_KEEPS_PATH = re.compile(r"PYTHONPATH=.*\$[{(]?PYTHONPATH", re.DOTALL)
_UNSETS_PATH = re.compile(r"(?:-u|--unset=)PYTHONPATH")
_CLEARS = re.compile(r"-|-i\w*|--ignore-environment")
_PYTHON = re.compile(r"python[\d.]*")
_ISOLATED = re.compile(r"-[bBdhiOPqsSuvVx]*[EI]")
"""Options of Python's that have no value may stand in one word."""
_STARTS = re.compile(r"-[bBdhiOPqsSuvVx]*[cm]|[^-]")
_NOT_PLAIN = re.compile(r"[$`{\s]")


@dataclass(frozen=True, slots=True)
class Server:
    """A server as its container starts it."""

    kind: ServerKind
    url: str | None
    """Base URL of its own page, seen from its pod; None: not known, or not to be read."""
    remark: str
    """Its address, or why that is not known."""
    arguments: Sequence[str] = ()
    """The words that it gets itself; none if its command is not known."""


def server_in(
    words: Sequence[str], image: str, *, has_command: bool, is_named: bool = False
) -> Server | None:
    """The server that a container starts; None: its command is not that of one.

    words: command and arguments; is_named: taken for a server whatever it runs. Raises
    LeftAloneError if the server would not load the observer, or is not the only one.
    """
    script = script_of(words)
    own = list(words)
    if not has_command and script is None and _ENTRY_POINT.search(name_of(image)):
        own = ["vllm", "serve", *words]
    if script is None or known_server(own) is not None:
        commands = [Command(own)]
    else:
        commands = commands_of(script)
    servers = list(_servers(commands))
    if not servers:
        if not is_named:
            return None
        guess: ServerKind = "sglang" if "sglang" in image else "vllm"
        return Server(guess, None, "its page is not read, since its command names no port")
    _check_variables(commands, "command" if script is None else "script")
    first, *others = servers
    if any(other.url != first.url for other in others):
        why = "its script starts one of several, whose addresses differ"
        return replace(first, url=None, remark=f"its page is not read: {why}")
    return first


def mentioned_server(content: Any) -> str | None:
    """The place of a server anywhere in an object, whatever its kind; None: no server is seen."""
    waiting = [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value[::-1]
        if not isinstance(value, Mapping):
            continue
        waiting += [*value.values()][::-1]
        image = value.get("image")
        words = [value.get(key) for key in ("command", "args")]
        own = [str(word) for part in words if isinstance(part, list) for word in part]
        is_image = isinstance(image, str) and _SERVERS_IMAGE.search(name_of(image))
        if is_image or (own and _is_server(own)):
            return f"container {value['name']}" if value.get("name") else f"image {image}"
    return None


def launcher(words: Sequence[str], image: str) -> str | None:
    """The reason why a container is left alone whose program starts an engine; None: its program
    is not known to do so."""
    text = " ".join([*words, image])
    found = ((pattern.search(text), reason) for pattern, reason in _LAUNCHERS)
    return next((reason.format(match[1]) for match, reason in found if match), None)


def _is_server(words: Sequence[str]) -> bool:
    script = script_of(words)
    commands = [Command([*words])] if script is None else commands_of(script)
    return any(known_server(command.words) is not None for command in commands)


def name_of(image: str) -> str:
    """Last part of an image's name, without tag and digest."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def _servers(commands: Sequence[Command]) -> Iterator[Server]:
    """The only one, or the alternatives. Raises LeftAloneError."""
    kind, last = None, 0
    for place, command in enumerate(commands):
        known = known_server(command.words)
        if known is None:
            continue
        is_other = kind is not None and kind != known[0]
        if is_other or (kind and not are_alternatives(commands[last : place + 1])):
            raise LeftAloneError(
                "its script starts several servers, which would share one folder of sockets: "
                "give each a container of its own"
            )
        kind, last = known[0], place
        _check_interpreter(_before_server(command.words))
        yield _server(kind, command.words, known[1])


def _server(kind: ServerKind, words: Sequence[str], arguments: Sequence[str]) -> Server:
    url = api_server_of(words, is_here=False)
    if url is None:
        why = "has no page of metrics, or its port is not in its command"
        return Server(kind, None, f"its page is not read: it {why}", arguments)
    if _NOT_PLAIN.search(url):
        return Server(kind, None, "its page is not read: its host is not in its command", arguments)
    if any("--ssl-" in word[1:] for word in words):  # behind a template's or a shell's condition
        why = "a condition in its script decides whether it is https"
        return Server(kind, None, f"its page is not read: {why}", arguments)
    if url.startswith("https:"):
        return Server(kind, None, "its page is not read, since it is https", arguments)
    return Server(kind, url, url, arguments)


def _before_server(words: Sequence[str]) -> Sequence[str]:
    """All but its arguments."""
    known = known_server(words)
    return words if known is None else words[: len(words) - len(known[1])]


def _check_variables(commands: Sequence[Command], place: str) -> None:
    """Raises LeftAloneError if a command changes what the server has to get."""
    for command in commands:
        words = _before_server(command.words)
        if any(word.startswith("PYTHONPATH=") and not _KEEPS_PATH.match(word) for word in words):
            raise LeftAloneError(
                f"its {place} sets PYTHONPATH: write PYTHONPATH=...:$PYTHONPATH there"
            )
        is_unset = "unset" in words and "PYTHONPATH" in words[words.index("unset") :]
        if is_unset or (known_server(command.words) and _drops_path(words)):
            raise LeftAloneError(f"its {place} takes PYTHONPATH away: leave it as it is there")


def _drops_path(words: Sequence[str]) -> bool:
    """Whether an `env` among them takes it away, or all variables."""
    for word, following in pairwise([*words, ""]):
        if word in ("-u", "--unset") and following == "PYTHONPATH":
            return True
        if _UNSETS_PATH.fullmatch(word):
            return True
        if PurePath(word).name == "env" and _CLEARS.fullmatch(following):
            return True
    return False


def _check_interpreter(words: Sequence[str]) -> None:
    """Raises LeftAloneError if an option before the module hides PYTHONPATH from Python."""
    for place, word in enumerate(words):
        if not _PYTHON.fullmatch(PurePath(word).name):
            continue
        options = iter(words[place + 1 :])
        for option in options:
            if _ISOLATED.match(option):
                raise LeftAloneError(f"its Python ignores PYTHONPATH ({option})")
            if _STARTS.match(option):
                break
            if option in ("-W", "-X"):
                next(options, None)
