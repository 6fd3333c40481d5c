"""`kvscope` as a process of its own, and what it wrote."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 180.0
"""Loading torch and transformers on a machine that is busy with other tests."""


class Process:
    """A running `kvscope`. stderr is read as it comes."""

    def __init__(self, popen: "subprocess.Popen[str]") -> None:
        self.popen = popen
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        return "".join(self.lines)

    def find(self, pattern: str) -> str:
        """The group of the first match in what it writes; waits for it."""
        wait_for(
            lambda: re.search(pattern, self.text) is not None or self.popen.poll() is not None,
            pattern,
            START_SECONDS,
        )
        match = re.search(pattern, self.text)
        assert match is not None, self.text
        return match[1]

    def send(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def wait(self, seconds: float = 30.0) -> int:
        """Its exit status, after its last line was read."""
        status = self.popen.wait(seconds)
        self._reader.join(seconds)
        return status

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.lines.append(line)


@contextmanager
def kvscope(
    *arguments: str, module: str = "kvscope", python: str | None = None, **environment: str
) -> Iterator[Process]:
    """The command, killed at the end if it still runs. python: None is the one that runs us."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("KVSCOPE_")}
    with subprocess.Popen(
        [python or sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=inherited | {"PYTHONUNBUFFERED": "1"} | environment,
    ) as popen:
        process = Process(popen)
        try:
            yield process
        finally:
            if popen.poll() is None:
                popen.kill()
            process.wait()
