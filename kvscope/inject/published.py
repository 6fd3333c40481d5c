"""The ports of the host that a Compose file takes, as far as they can be read in it."""

import re
from collections.abc import Container, Iterator, Mapping
from itertools import pairwise
from typing import Any

from kvscope.inject.tree import LeftAloneError, mapping

_DEFAULT = re.compile(r"\$\{\w+:?-([^}]*)\}")
"""`${NAME:-VALUE}`, which is VALUE for us."""
_LAST_PORT = 65_535
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def ports_of_the_host(services: Mapping[str, Any]) -> set[int]:
    """The ports that are published, and those of commands in the host's network."""
    found: set[int] = set()
    for service in map(mapping, services.values()):
        for text in _published(service.get("ports")):
            given = _RANGE.fullmatch(_DEFAULT.sub(r"\1", text))
            if given is not None:
                last = min(int(given[2] or given[1]), _LAST_PORT)
                found |= set(range(int(given[1]), last + 1))
        if service.get("network_mode") == "host":
            found |= set(_of_command(service.get("command")))
    return found


def free_port(first: int, taken: Container[int]) -> int:
    """The first that is not taken. Raises LeftAloneError."""
    for port in range(first, _LAST_PORT + 1):
        if port not in taken:
            return port
    raise LeftAloneError(f"no port from {first} on is free for its page: choose a lower --port")


def _published(ports: Any) -> Iterator[str]:
    for port in ports if isinstance(ports, list) else ():
        if isinstance(port, Mapping):
            yield str(port.get("published"))
            continue
        # [ADDRESS:]HOST:CONTAINER[/PROTOCOL]
        *_, host, _ = ["", "", *_DEFAULT.sub(r"\1", str(port)).split(":")]
        yield host


def _of_command(command: Any) -> Iterator[int]:
    """The number behind --port."""
    words = command if isinstance(command, list) else str(command or "").split()
    for word, following in pairwise([*map(str, words), ""]):
        name, sign, value = word.partition("=")
        text = value if sign else following
        if name == "--port" and text.isdecimal():
            yield int(text)
