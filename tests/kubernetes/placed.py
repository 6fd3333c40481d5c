"""The words of a pod's containers on this machine: folders for its volumes, and ports of ours."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_PORT = re.compile(r"(--port[= ]|://[a-z0-9.-]+:)(\d+)")


def placed(
    folders: Mapping[str, Path], ports: Mapping[int, int]
) -> Callable[[Sequence[str]], list[str]]:
    """A function of some words; folders: by the path where the container has them; ports: by the
    container's, in options and in the URLs of servers, which are here on loopback."""
    path = re.compile("|".join(rf"{re.escape(name)}(?![\w-])" for name in folders))

    def port(found: re.Match[str]) -> str:
        if int(found[2]) not in ports:
            return found[0]
        before = found[1] if found[1].startswith("--") else "://127.0.0.1:"
        return f"{before}{ports[int(found[2])]}"

    def here(words: Sequence[str]) -> list[str]:
        moved = [_PORT.sub(port, word) for word in _joined(words)]
        return [path.sub(lambda found: str(folders[found[0]]), word) for word in moved]

    return here


def _joined(words: Sequence[str]) -> list[str]:
    """`--port 8010` as `--port=8010`."""
    found: list[str] = []
    for word in words:
        if found and found[-1] == "--port":
            found[-1] = f"--port={word}"
        else:
            found.append(word)
    return found
