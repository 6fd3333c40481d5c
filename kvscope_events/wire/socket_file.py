"""The claim on an ipc endpoint: one live process holds it, a dead one's socket file is replaced.

A socket file outlives its process, and removing it may cut off another that still serves it. A lock
file beside it decides: its record lock ends with the process that holds it and is not inherited by
fork.
"""

import contextlib
import errno
import fcntl
import os
import socket
import stat

from kvscope_events.wire.endpoint import EndpointError
from kvscope_events.wire.run_directory import prepare_directory

_IN_THE_WAY = (errno.ELOOP, errno.EISDIR, errno.EACCES, errno.ENXIO)
_Identity = tuple[int, int, int, int]
_HELD: set[str] = set()
"""Claims of this process: its own record locks would not keep it out."""


class SocketFile:
    """Holds an ipc path from construction to `release`; raises EndpointError if it is taken."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock_path = path + ".lock"
        self._pid = os.getpid()
        self._bound: _Identity | None = None
        if path in _HELD:
            raise _taken(path)
        prepare_directory(os.path.dirname(path))
        self._lock, is_new = self._locked()
        try:
            self._clear(is_new)
        except BaseException:
            self._unlock()
            raise
        _HELD.add(path)

    def note(self) -> None:
        """The socket is bound: from now on only this file is ours."""
        with contextlib.suppress(OSError):  # it is gone already
            self._bound = _identity(os.lstat(self._path))

    @property
    def is_gone(self) -> bool:
        """Whether it was removed, as by a job that cleans /tmp, or something else is in its place;
        not where that cannot be seen."""
        try:
            return _identity(os.lstat(self._path)) != self._bound
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:  # its folder is closed to us for now
            return False

    def release(self) -> None:
        """Remove the socket file and give up the claim. A forked child leaves both alone. Never
        raises: what cannot be removed, or is another's by now, stays."""
        if self._pid != os.getpid() or self._path not in _HELD:
            return
        _HELD.discard(self._path)
        with contextlib.suppress(OSError):
            if _identity(os.lstat(self._path)) == self._bound:
                os.unlink(self._path)
        self._unlock()

    def _locked(self) -> tuple[int, bool]:
        while True:
            is_new = not os.path.lexists(self._lock_path)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                lock = os.open(self._lock_path, flags, 0o600)
            except OSError as error:
                remedy = "remove it" if error.errno in _IN_THE_WAY else "use another directory"
                problem = f"cannot be opened: {error.strerror}"
                raise EndpointError(self._lock_path, problem, remedy) from error
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(lock)
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    raise _taken(self._path) from error
                problem = f"cannot be locked: {error.strerror}"
                raise EndpointError(self._lock_path, problem, "use another directory") from error
            found = os.fstat(lock)
            if not stat.S_ISREG(found.st_mode):
                os.close(lock)
                raise EndpointError(self._lock_path, "it exists and is not a file", "remove it")
            # The holder before us may have removed the file between our open and our lock.
            with contextlib.suppress(FileNotFoundError):
                if os.stat(self._lock_path).st_ino == found.st_ino:
                    return lock, is_new
            os.close(lock)

    def _clear(self, is_new: bool) -> None:
        """Remove what a dead publisher left; refuse what is not its socket."""
        try:
            found = os.lstat(self._path)
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(found.st_mode):
            raise EndpointError(self._path, "it exists and is not a socket", "use another")
        # Never a publisher's: some other program's, which may never accept us.
        if is_new and answers(self._path, 0.0):
            raise _taken(self._path)
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            return
        except OSError as error:
            problem = f"cannot be replaced: {error.strerror}"
            raise EndpointError(self._path, problem, "remove it") from error

    def _unlock(self) -> None:
        with contextlib.suppress(OSError):
            if os.path.samestat(os.lstat(self._lock_path), os.fstat(self._lock)):
                os.unlink(self._lock_path)
        os.close(self._lock)


def answers(path: str, seconds: float) -> bool:
    """Whether a process listens there; False after `seconds`, 0 to wait for nothing.

    One that does not run accepts nothing: its backlog is full in the end, which refuses at once.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(seconds)
        try:
            return probe.connect_ex(path) in (0, errno.EAGAIN)
        except OSError:  # a path too long for a socket
            return False


def _identity(found: os.stat_result) -> _Identity:
    """Its number alone would soon be that of another file."""
    return found.st_dev, found.st_ino, stat.S_IFMT(found.st_mode), found.st_mtime_ns


def _taken(path: str) -> EndpointError:
    return EndpointError(
        f"ipc://{path}", "another process publishes there", "stop it or use another endpoint"
    )
