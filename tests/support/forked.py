"""Processes that are forks of one that has the engine imported: as `subprocess.Popen` has them."""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path

from tests.support.fork_server import LONGEST_REQUEST, NUMBER_BYTES, Start, decoded

_END_SECONDS = 30.0
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
    """Started by the first test of this process that wants a fork; ends when this process does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        server = subprocess.Popen(
            [sys.executable, "-u", "-m", "tests.support.fork_server", str(theirs.fileno())],
            cwd=Path(__file__).resolve().parents[2],
            pass_fds=[theirs.fileno()],
            # One thread, as each process of `make test`: BLAS would start others at its import.
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
    atexit.register(_end, ours, server)
    return ours


def _end(ours: socket.socket, server: "subprocess.Popen[bytes]") -> None:
    ours.close()
    server.wait(_END_SECONDS)
