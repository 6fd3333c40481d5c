"""The directory where sockets of the wire lie: ours alone, or it is not used."""

import os
import stat
from pathlib import Path

from kvscope_events.wire.endpoint import Endpoint, parse_endpoint
from kvscope_events.wire.errors import EndpointError


def run_directory() -> Path:
    """KVSCOPE_RUN_DIR, else `kvscope` in XDG_RUNTIME_DIR, else /tmp/kvscope-<uid>; not created."""
    if configured := os.environ.get("KVSCOPE_RUN_DIR"):
        return Path(configured).absolute()
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime, "kvscope").absolute()
    return Path(f"/tmp/kvscope-{os.getuid()}")


def run_endpoint(name: str) -> str:
    """The ipc endpoint `name` in the run directory."""
    return f"ipc://{run_directory() / name}.sock"


def prepare_directory(directory: Path) -> None:
    """Create it with mode 0700 if it is missing; raises EndpointError unless it is ours alone."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise EndpointError(
            str(directory), f"cannot be created: {error.strerror}", _ANOTHER
        ) from error
    found = directory.lstat()
    if problem := _untrusted(found):
        raise EndpointError(str(directory), problem, _ANOTHER)
    if found.st_uid != os.geteuid():
        raise EndpointError(
            str(directory), f"it belongs to uid {found.st_uid}, we are {os.geteuid()}", _ANOTHER
        )


def connectable(text: str, *, allow_remote: bool = False) -> Endpoint:
    """An endpoint to read from. One that does not exist yet is fine; raises EndpointError.

    The directory may belong to another user, whose server root watches, but nobody else may be able
    to put a socket there.
    """
    endpoint = parse_endpoint(text, allow_remote=allow_remote)
    if endpoint.path is not None and os.path.lexists(endpoint.path.parent):
        found = endpoint.path.parent.lstat()
        if problem := _untrusted(found):
            raise EndpointError(str(endpoint.path.parent), problem, _ANOTHER)
        if found.st_uid not in (os.geteuid(), 0) and os.geteuid() != 0:
            raise EndpointError(
                str(endpoint.path.parent),
                f"it belongs to uid {found.st_uid}, we are {os.geteuid()}",
                "run the reader as the user of the server, or as root",
            )
    return endpoint


def _untrusted(found: os.stat_result) -> str:
    if stat.S_ISLNK(found.st_mode):
        return "it is a link"
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a directory"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to it (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


_ANOTHER = "use a directory of your own with mode 0700, or set KVSCOPE_RUN_DIR to one"
