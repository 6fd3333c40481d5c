"""One attack as a process of its own, so that its work does not slow the unrelated client's.

    python -m tools.chaos.attacker NAME API_PORT METRICS_PORT SECONDS

It yields the processor to the server, as an attacker on another machine would. Exit status 3: the
server broke a promise, which the one line on stderr names.
"""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.process import ROOT
from tools.chaos.attacks import ATTACKS
from tools.chaos.server import ChaosServer
from tools.chaos.target import NotHeldError, Target

NOT_HELD = 3
_NICENESS = 10
_GRACE_SECONDS = 3.0
"""An attack that waits for an answer may end this much after its time."""
_DESCRIPTORS = 4096


class Attacker:
    """A running attack. It is killed, with what it started, if it does not end by itself."""

    def __init__(self, popen: "subprocess.Popen[str]", seconds: float) -> None:
        self._popen = popen
        self._deadline = time.monotonic() + seconds + _GRACE_SECONDS

    def wait(self) -> str:
        """Until it has ended. Returns what it found wrong; empty: nothing."""
        try:
            _, errors = self._popen.communicate(timeout=self._deadline - time.monotonic())
        except subprocess.TimeoutExpired:
            os.killpg(self._popen.pid, signal.SIGKILL)
            self._popen.communicate()
            return ""  # the server keeps it waiting, which does not break a promise
        return "" if self._popen.returncode == 0 else errors.strip().splitlines()[-1]


@contextmanager
def attacking(name: str, server: ChaosServer, seconds: float) -> Iterator[Attacker]:
    """The attack, begun."""
    ports = (str(server.api_port), str(server.metrics_port))
    with subprocess.Popen(
        [sys.executable, "-m", "tools.chaos.attacker", name, *ports, str(seconds)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as popen:
        try:
            yield Attacker(popen, seconds)
        finally:
            if popen.poll() is None:
                os.killpg(popen.pid, signal.SIGKILL)


def main() -> None:
    name, api_port, metrics_port, seconds = sys.argv[1:]
    os.nice(_NICENESS)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    soft = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    target = Target(int(api_port), int(metrics_port), time.monotonic() + float(seconds))
    try:
        ATTACKS[name](target)
    except NotHeldError as error:
        print(error, file=sys.stderr)
        sys.exit(NOT_HELD)


if __name__ == "__main__":
    main()
