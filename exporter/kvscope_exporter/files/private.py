"""Files that only we may read: made with mode 0600, and opened again only if they are still ours.

Where others may write to the folder, a name may be a link, a pipe, or a file of another user.
"""

import fcntl
import os
import stat
from contextlib import suppress
from errno import EINVAL, EPERM
from io import FileIO
from pathlib import Path

from kvscope_exporter.files.foreign import kind_of

_MODE = 0o600
_CREATE = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_OPEN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def create_private(path: Path) -> FileIO:
    """A new file to append to, unbuffered: what was written survives the end of this process.

    Raises OSError; FileExistsError if the name is taken, also by a link.
    """
    place = os.open(path, _CREATE, _MODE)
    with suppress(PermissionError):  # of a file system without modes
        os.fchmod(place, _MODE)  # a umask can have taken even our own right to read
    return FileIO(place, "ab")


def open_own(path: Path, flags: int = os.O_RDONLY) -> FileIO:
    """A regular file of ours. Raises OSError at once, also for a link, a pipe or a device."""
    _check(os.lstat(path), path)  # before opening as well: that may have side effects
    place = os.open(path, flags | _OPEN)
    try:
        _check(os.fstat(place), path)
        return FileIO(place, "r" if flags == os.O_RDONLY else "r+")
    except BaseException:
        os.close(place)
        raise


def append_whole(file: FileIO, content: bytes, size: int) -> None:
    """Append to a file of `size` bytes, which keeps this size if that fails. Raises OSError."""
    left = memoryview(content)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError:
        with suppress(OSError):
            os.ftruncate(file.fileno(), size)
        raise


def lock(file: FileIO) -> bool:
    """Hold it until it is closed, as is every duplicate; False: another process holds it.

    The kernel keeps this lock with the open file: it needs no process number, which in another
    container may be anyone's, and ends with its holder. Raises OSError where there are no locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_removed(file: FileIO) -> bool:
    """Whether its name is gone, so that it ends with the last process that has it open."""
    return os.fstat(file.fileno()).st_nlink == 0


def _check(found: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(EINVAL, f"{kind_of(found.st_mode)}, not a file", str(path))
    if found.st_uid != os.geteuid():
        text = f"it belongs to uid {found.st_uid}, we are {os.geteuid()}"
        raise OSError(EPERM, text, str(path))
    if found.st_nlink > 1:
        raise OSError(EINVAL, "it has a second name, a hard link", str(path))
