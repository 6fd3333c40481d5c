"""Files that others may change: opened without waiting, read and never mapped, since a writer that
truncates a mapped file causes SIGBUS."""

import errno
import os
import select
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

PIPE_SECONDS = 5.0
"""Time for the writer of a pipe, such as a shell's <(…)."""
_BUFFER_BYTES = 1 << 20
_PORTION = 1 << 16


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file. Raises OSError at once, also for a pipe, a device or a folder."""
    place = _opened(path, stat.S_ISREG)
    return os.fdopen(place, "rb", buffering=_BUFFER_BYTES)


def read_small(path: Path, max_bytes: int) -> bytes:
    """The content of a file or a pipe; `max_bytes` + 1 bytes of a larger one. Raises OSError."""
    place = _opened(path, lambda mode: stat.S_ISREG(mode) or stat.S_ISFIFO(mode))
    content = bytearray()
    deadline = time.monotonic() + PIPE_SECONDS
    try:
        while len(content) <= max_bytes:
            try:
                portion = os.read(place, min(_PORTION, max_bytes + 1 - len(content)))
            except BlockingIOError:
                _wait(place, deadline)
                continue
            if not portion:
                break
            content += portion
        if not content and stat.S_ISFIFO(os.fstat(place).st_mode):
            raise OSError(errno.ENODATA, "a pipe that nothing writes to")
    finally:
        os.close(place)
    return bytes(content)


def _opened(path: Path, is_wanted: Callable[[int], bool]) -> int:
    # Checked before opening as well: opening a device may have side effects.
    _check(os.stat(path).st_mode, is_wanted)
    place = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        _check(os.fstat(place).st_mode, is_wanted)
    except BaseException:
        os.close(place)
        raise
    return place


def _check(mode: int, is_wanted: Callable[[int], bool]) -> None:
    if not is_wanted(mode):
        raise OSError(errno.EINVAL, f"{kind_of(mode)}, not a file")


def kind_of(mode: int) -> str:
    """For people; of what is not a regular file."""
    if stat.S_ISLNK(mode):
        return "a link"
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def _wait(place: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(place, select.POLLIN)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise OSError(errno.ETIMEDOUT, f"a pipe into which nothing came for {PIPE_SECONDS:g} s")
