"""The directory for the sockets of the wire; it is refused unless it is ours alone.

Who can write to a directory above it could replace it, so those count as well.
"""

import os
import stat
from collections.abc import Collection, Iterator

from kvscope_events.wire.endpoint import Endpoint, EndpointError, parse_endpoint

RUN_VARIABLE = "KVSCOPE_RUN_DIR"
_PLACES = ("/tmp", "/var/tmp", "/dev/shm")
_MORE = 8
"""Further names in the first of them, should others have taken all of these."""
_MAX_LINKS = 40
"""As many as the kernel follows."""


def run_directory() -> str:
    """KVSCOPE_RUN_DIR, else `kvscope` in XDG_RUNTIME_DIR, else /tmp/kvscope-<uid>; not created.

    Where another user has that one, the next of a fixed list: every command finds the same.
    """
    if configured := os.environ.get(RUN_VARIABLE):
        return os.path.abspath(configured)
    usual = _usual()
    if os.environ.get("XDG_RUNTIME_DIR") and not _problem_of(usual):
        return usual
    usable = [path for path in _shared() if not _problem_of(path)]
    ours = (path for path in usable if os.path.lexists(path))
    return next(ours, usable[0] if usable else usual)


def settle_run_directory() -> str:
    """Have this process and all that it starts use the same one; the reason for another than the
    usual, or nothing."""
    usual, chosen = _usual(), run_directory()
    if os.environ.get(RUN_VARIABLE) or chosen == usual:
        return ""
    os.environ[RUN_VARIABLE] = chosen
    return f"{usual} is not used for sockets ({_problem_of(usual) or 'in use'}), but {chosen}"


def run_endpoint(name: str) -> str:
    """The ipc endpoint `name` in the run directory."""
    return f"ipc://{run_directory()}/{name}.sock"


def prepare_directory(directory: str) -> None:
    """Create it with mode 0700 if it is missing; raises EndpointError unless it is ours alone."""
    if problem := _above(directory, (0, os.geteuid())):
        raise EndpointError(directory, problem, _ANOTHER)
    try:
        _make(directory)
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
        if problem := _above(directory, (0, os.geteuid(), found.st_uid)):
            raise EndpointError(directory, problem, _ANOTHER)
    return endpoint


def _usual() -> str:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return os.path.abspath(os.path.join(runtime, "kvscope")) if runtime else next(_shared())


def _shared() -> Iterator[str]:
    """In folders where every user may make one."""
    name = f"kvscope-{os.getuid()}"
    yield from (f"{place}/{name}" for place in _PLACES)
    yield from (f"{_PLACES[0]}/{name}-{number}" for number in range(1, _MORE + 1))


def _problem_of(directory: str) -> str:
    """The reason why it cannot be ours; empty: it is, or can be made."""
    if problem := _above(directory, (0, os.geteuid())):
        return problem
    if os.path.lexists(directory):
        found = os.lstat(directory)
        return _untrusted(found) or ("" if found.st_uid == os.geteuid() else _owner(found))
    above = directory
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    return "" if os.access(above, os.W_OK | os.X_OK) else f"{above} cannot be written"


def _make(directory: str) -> None:
    """Whatever the umask, others may not write to one that is made on the way."""
    parent = os.path.dirname(directory)
    if not os.path.lexists(parent):
        _make(parent)
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        if not os.path.isdir(directory):
            raise


def _above(directory: str, trusted: Collection[int]) -> str:
    """The problem with a directory or a link above it, through which others may exchange what is
    below; empty: all that exist are sound."""
    waiting = os.path.dirname(os.path.abspath(directory)).split("/")[::-1]
    current, links = "/", 0
    while waiting:
        part = waiting.pop()
        path = os.path.normpath(os.path.join(current, part))
        try:
            found = os.lstat(path)
        except OSError:  # missing, or not ours to enter: what makes it says so
            return ""
        if found.st_uid not in trusted:
            return f"{path} above it belongs to uid {found.st_uid}"
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _MAX_LINKS:
                return "too many links are above it"
            target = os.readlink(path)
            current = "/" if target.startswith("/") else current
            waiting += target.split("/")[::-1]
        elif _is_open(found) and not os.path.ismount(path):  # a volume: its user's choice
            return f"others may write to {path} above it (mode {stat.S_IMODE(found.st_mode):04o})"
        else:
            current = path
    return ""


def _is_open(found: os.stat_result) -> bool:
    """Whether others may remove what another user has there. A group that has its only member's
    number is that user's own."""
    mode = found.st_mode
    if mode & stat.S_ISVTX:
        return False
    by_group = mode & stat.S_IWGRP and found.st_gid not in (0, found.st_uid)
    return bool(mode & stat.S_IWOTH or by_group)


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
