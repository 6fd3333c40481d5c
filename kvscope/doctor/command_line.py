"""The command line of the process that listens on a local port, to suggest how to start it."""

import contextlib
import os
import re
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

from kvscope_exporter.machine.host_memory import read_text

_LISTENING = "0A"
MAX_LENGTH = 400
_SECRET = re.compile(r"--[a-z-]*(?:key|token|password)(?P<value>=.*)?", re.DOTALL)


def is_local(host: str) -> bool:
    """Whether the host is this machine, so that its addresses can be bound here."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(address)
    except (OSError, UnicodeError):
        return False
    return True


def command_on(port: int, root: Path = Path("/proc")) -> str | None:
    """The command line, quoted for a shell; None if it is not readable, or too long to show."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port, root)}
    if not sockets:
        return None
    for process in sorted(root.glob("[0-9]*"), key=lambda path: int(path.name)):
        if not sockets.isdisjoint(_files(process)):
            return _command(process)
    return None


def _files(process: Path) -> Iterator[str]:
    """Files that a process has open; empty if it is another user's, or gone."""
    try:
        files = os.listdir(process / "fd")
    except OSError:
        return
    for file in files:
        with contextlib.suppress(OSError):  # closed meanwhile
            yield os.readlink(process / "fd" / file)


def _inodes(port: int, root: Path) -> set[str]:
    found = set()
    for table in ("tcp", "tcp6"):
        for line in (read_text(root / "net" / table) or "").splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(fields[9])
    return found


def _command(process: Path) -> str | None:
    words = (read_text(process / "cmdline") or "").rstrip("\0").split("\0")
    # A script is run by its interpreter: `/…/python3 /…/bin/vllm serve` is `vllm serve`.
    if len(words) > 2 and Path(words[0]).name.startswith("python") and words[1].startswith("/"):
        words = [Path(words[1]).name, *words[2:]]
    command = shlex.join(_masked(words))
    return command if words[0] and len(command) <= MAX_LENGTH else None


def _masked(words: list[str]) -> list[str]:
    """The words without the values of options that hold a secret."""
    masked: list[str] = []
    hide = False
    for word in words:
        secret = _SECRET.fullmatch(word)
        if hide:
            word = "***"
        elif secret is not None and secret["value"]:
            word = word.partition("=")[0] + "=***"
        hide = secret is not None and not secret["value"]
        masked.append(word)
    return masked
