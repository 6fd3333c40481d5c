"""The directory for the sockets of the wire; it is refused unless it is ours alone."""

import os
import stat

from kvscope_events.wire.endpoint import Endpoint, EndpointError, parse_endpoint

RUN_VARIABLE = "KVSCOPE_RUN_DIR"


def run_directory() -> str:
    """KVSCOPE_RUN_DIR, else `kvscope` in XDG_RUNTIME_DIR, else /tmp/kvscope-<uid>; not created."""
    if configured := os.environ.get(RUN_VARIABLE):
        return os.path.abspath(configured)
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return os.path.abspath(os.path.join(runtime, "kvscope"))
    return f"/tmp/kvscope-{os.getuid()}"


def run_endpoint(name: str) -> str:
    """The ipc endpoint `name` in the run directory."""
    return f"ipc://{run_directory()}/{name}.sock"


def prepare_directory(directory: str) -> None:
    """Create it with mode 0700 if it is missing; raises EndpointError unless it is ours alone."""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        found = os.lstat(directory)
    except OSError as error:
        raise EndpointError(directory, f"cannot be created: {error.strerror}", _ANOTHER) from error
    if problem := _untrusted(found):
        raise EndpointError(directory, problem, _ANOTHER)
    if found.st_uid != os.geteuid():
        raise EndpointError(directory, _owner(found), _ANOTHER)


def connectable(text: str, *, allow_remote: bool = False) -> Endpoint:
    """An endpoint to read from, which need not exist yet; raises EndpointError.

    The directory may belong to another user when root watches that user's server, but no other user
    may be able to put a socket there.
    """
    endpoint = parse_endpoint(text, allow_remote=allow_remote)
    if endpoint.path is None and endpoint.address.endswith(":0"):
        raise EndpointError(text, "port 0 cannot be reached", "use the publisher's port")
    directory = os.path.dirname(endpoint.path) if endpoint.path is not None else None
    if directory is not None and os.path.lexists(directory):
        found = os.lstat(directory)
        if problem := _untrusted(found):
            raise EndpointError(directory, problem, _ANOTHER)
        if found.st_uid not in (os.geteuid(), 0) and os.geteuid() != 0:
            remedy = "run the reader as the user of the server, or as root"
            raise EndpointError(directory, _owner(found), remedy)
    return endpoint


def _owner(found: os.stat_result) -> str:
    return f"it belongs to uid {found.st_uid}, we are {os.geteuid()}"


def _untrusted(found: os.stat_result) -> str:
    if stat.S_ISLNK(found.st_mode):
        return "it is a link"
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a directory"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to it (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


_ANOTHER = f"use a directory of your own with mode 0700, or set {RUN_VARIABLE} to one"
