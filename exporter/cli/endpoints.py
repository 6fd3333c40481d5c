"""`--events [NAME=]ENDPOINT`: which servers a sidecar watches, and where their engines publish."""

import re
from collections.abc import Iterable

_NAMED = re.compile(r"(?P<name>[^=/]*)=(?P<endpoint>[a-z]+://.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")
_FORM = "expected NAME=ENDPOINT or ENDPOINT, such as llama=tcp://127.0.0.1:5557"


def servers_of(options: Iterable[str]) -> dict[str, list[str]]:
    """Endpoints by server, in the order given; engines of one server have the same NAME.

    Raises ValueError, which names the option.
    """
    servers: dict[str, list[str]] = {}
    derived: dict[str, str] = {}
    seen: set[str] = set()
    for option in options:
        name, endpoint = _split(option)
        if endpoint in seen:
            raise ValueError(f"--events {option}: {endpoint} is given twice")
        seen.add(endpoint)
        if name is None:
            name = _derive(endpoint)
            if name in servers:
                first = servers[name][0]
                raise ValueError(
                    f"--events {option}: {first} is called {name!r} as well; write "
                    f"NAME={endpoint}, with the same NAME for engines of one server"
                )
            derived[name] = endpoint
        elif name in derived:
            raise ValueError(
                f"--events {option}: {derived[name]} is called {name!r} without being named; "
                f"write {name}={derived[name]} if both are engines of one server"
            )
        servers.setdefault(name, []).append(endpoint)
    if not servers:
        raise ValueError(f"--events is missing: {_FORM}")
    return servers


def _split(option: str) -> tuple[str | None, str]:
    named = _NAMED.fullmatch(option)
    if named is None:
        if "://" not in option:
            raise ValueError(f"--events {option!r}: no endpoint in it; {_FORM}")
        return None, option
    name = named["name"]
    if _NAME.fullmatch(name) is None:
        raise ValueError(
            f"--events {option!r}: the name {name!r} may have letters, digits and . _ : - only, "
            "and begins with a letter or digit"
        )
    return name, named["endpoint"]


def _derive(endpoint: str) -> str:
    """ipc:///run/kvscope/serve-8000.sock → serve-8000; tcp://127.0.0.1:5557 → 127.0.0.1:5557.

    The name of a folder's sockets is that of the folder: ipc:///run/kvscope/vllm/* → vllm.
    """
    transport, _, rest = endpoint.partition("://")
    if transport == "ipc":
        rest = rest.removesuffix("/*").rpartition("/")[2].removesuffix(".sock")
    if _NAME.fullmatch(rest) is None:
        raise ValueError(f"--events {endpoint!r}: no name can be read from it: write NAME=ENDPOINT")
    return rest
