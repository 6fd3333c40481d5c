"""Processes that are forks of one that has the engine imported: as `subprocess.Popen` has them."""

import atexit
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path

from tests.support.fork_server import LONGEST_REQUEST, NUMBER_BYTES, Start, decoded, locked

SHARED_FOLDER = "KVSCOPE_TEST_FORKS"
"""Variable with the folder of what the processes of one run share; tools.run_tests sets it."""
_asking = threading.Lock()


class Forked:
    """A fork that runs. output, errors: files for what it writes."""

    def __init__(self, start: Start, output: int, errors: int) -> None:
        self._status, status = os.pipe()
        message = json.dumps(start).encode()
        assert len(message) < LONGEST_REQUEST
        try:
            with _asking:
                socket.send_fds(_server(), [message], [output, errors, status])
        finally:
            os.close(status)
        self._ended: int | None = None
        self._reading = threading.Lock()
        self.pid = self._number()

    def poll(self) -> int | None:
        return self._result(0.0)

    def wait(self, timeout: float | None = None) -> int:
        status = self._result(timeout)
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """After its end."""
        os.close(self._status)

    def _result(self, timeout: float | None) -> int | None:
        with self._reading:
            if self._ended is None and select.select([self._status], [], [], timeout)[0]:
                self._ended = self._number()
            return self._ended

    def _number(self) -> int:
        read = os.read(self._status, NUMBER_BYTES)
        assert len(read) == NUMBER_BYTES, "the fork server has ended"
        return decoded(read)


@cache
def _server() -> socket.socket:
    """The connection to the server that the processes of a run share, else to one of this process.

    The first process to want a fork starts the server, which ends with the last one that asks."""
    folder = os.environ.get(SHARED_FOLDER)
    if folder is None:
        folder = tempfile.mkdtemp(prefix="kvscope-forks-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "fork-server"
    asking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with locked(path):
        if not path.exists():
            _start(path)
        asking.connect(str(path))
    atexit.register(asking.close)
    return asking


def _start(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.set_inheritable(True)
        root = Path(__file__).resolve().parents[2]
        # One thread, as each process of `make test`: BLAS would start others at its import.
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
        arguments = ["-u", "-m", "tests.support.fork_server", str(listener.fileno()), str(path)]
        os.posix_spawn(sys.executable, [sys.executable, *arguments], environment)
