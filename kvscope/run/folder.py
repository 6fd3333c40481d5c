"""The private folder of a `kvscope run`: the same path for the same port, and gone at the end.

The path is the label `endpoint`, so a restarted server continues its series.
"""

import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvscope.run.plugin_folder import write_plugin_folder
from kvscope_events.wire.endpoint import parse_endpoint
from kvscope_events.wire.run_directory import (
    prepare_directory,
    run_directory,
    settle_run_directory,
)
from kvscope_events.wire.socket_file import answers

logger = logging.getLogger("kvscope")

LONGEST_SOCKET = "engine-999-worker-9999.sock"
_LOCK = "lock"


@contextmanager
def run_folder(port: int) -> Iterator[Path]:
    """`run-PORT` in the run directory, with `sockets` and `plugin` in it; a different name while
    that one is in use, and for port 0.

    Raises EndpointError or OSError.
    """
    if remark := settle_run_directory():
        logger.warning("%s", remark)
    base = run_directory()
    parse_endpoint(f"ipc://{base}/run-{65535}-xxxxxxxx/sockets/{LONGEST_SOCKET}")
    prepare_directory(base)
    named = Path(base) / f"run-{port}"
    lock = _claimed(named) if port else None
    folder = named
    if lock is None:
        folder = Path(tempfile.mkdtemp(prefix=f"run-{port}-", dir=base))
    try:
        (folder / "sockets").mkdir(mode=0o700)
        write_plugin_folder(folder / "plugin")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _claimed(folder: Path) -> int | None:
    """A lock on the folder, which is otherwise empty; None: in use.

    A folder left behind by a killed run is cleared, unless its server still publishes there.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_ino != os.stat(folder / _LOCK).st_ino:
            raise BlockingIOError  # removed by its holder meanwhile
        if any(answers(str(path), 1.0) for path in (folder / "sockets").glob("*.sock")):
            raise BlockingIOError
        for left in ("sockets", "plugin"):
            shutil.rmtree(folder / left, ignore_errors=True)
    except OSError:
        os.close(lock)
        return None
    return lock
