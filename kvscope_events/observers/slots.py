"""Folders of sockets for several servers with one environment: `DIRECTORY/0`, `DIRECTORY/1`, …

A process that starts a server holds the lowest free one until it ends, so that a sidecar can name
all of them before any server has started.
"""

import fcntl
import os

_held: list[int] = []
"""Files whose locks this process has; closed by its end."""


class NoSlotError(Exception):
    """Other servers hold all of them."""


def take_slot(directory: str, slots: int) -> str:
    """The folder that is now this process's. Raises NoSlotError or OSError."""
    for number in range(slots):
        folder = os.path.join(directory, str(number))
        os.makedirs(folder, mode=0o700, exist_ok=True)
        held = os.open(f"{folder}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            continue
        _held.append(held)
        return folder
    raise NoSlotError(f"all {slots} folders below {directory} are in use: raise `slots`")
