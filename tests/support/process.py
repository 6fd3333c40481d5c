"""`kvscope` as a process of its own, and what it wrote."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from kvscope_events.tenants import SECRET_VARIABLE
from tests.support.fork_server import Start
from tests.support.forked import Forked
from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
_SOURCES = (".", "alerts", "engine", "exporter", "monitoring")
SOURCES = os.pathsep.join(str(ROOT / folder) for folder in _SOURCES)
"""PYTHONPATH for a foreign Python that imports packages of this checkout."""
START_SECONDS = 180.0
"""Loading torch and transformers on a machine that is busy with other tests."""
FULL_PAGES = {
    f"KVSCOPE_{name}_DETAIL": "full" for name in ("RUN", "ENGINE_SERVE", "SIDECAR", "DEMO")
}
"""For tests of figures that a lean page does not have."""


class Process:
    """A running `kvscope`. Its output is read as it comes."""

    def __init__(self, popen: "subprocess.Popen[str] | Forked", output: IO[str]) -> None:
        self.popen = popen
        self.lines: list[str] = []
        self._output = output
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
        for line in self._output:
            self.lines.append(line)


@contextmanager
def kvscope(
    *arguments: str, module: str = "kvscope", python: str | None = None, **environment: str
) -> Iterator[Process]:
    """The command in an interpreter of its own, killed at the end if it still runs.

    python: None is the one that runs us.
    """
    command = [python or sys.executable, "-m", module, *arguments]
    with started(command, _environment(environment)) as process:
        yield process


@contextmanager
def started(command: list[str], environment: Mapping[str, str] | None = None) -> Iterator[Process]:
    """Another program, killed at the end if it still runs."""
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    ) as popen:
        assert popen.stdout is not None
        with _ended(popen, popen.stdout) as process:
            yield process


@contextmanager
def forked_kvscope(
    *arguments: str, module: str = "kvscope", **environment: str
) -> Iterator[Process]:
    """The same without its imports, for tests whose subject is not the start itself."""
    start = _start(module, arguments, environment)
    reading, writing = os.pipe()
    with open(reading, encoding="utf-8") as output:
        try:
            fork = Forked(start, writing, writing)
        finally:
            os.close(writing)
        try:
            with _ended(fork, output) as process:
                yield process
        finally:
            fork.close()


def completed(
    *arguments: str, module: str = "kvscope", seconds: float = 60.0, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """A fork that ends by itself: its exit status, and what it wrote to each of its outputs."""
    start = _start(module, arguments, environment)
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        fork = Forked(start, output.fileno(), errors.fileno())
        try:
            status = fork.wait(seconds)
        finally:
            fork.kill()
            fork.close()
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(arguments, status, output.read(), errors.read())


@contextmanager
def _ended(popen: "subprocess.Popen[str] | Forked", output: IO[str]) -> Iterator[Process]:
    process = Process(popen, output)
    try:
        yield process
    finally:
        if popen.poll() is None:
            popen.kill()
        process.wait()


def _start(module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Start:
    ignores_hangup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return Start(module, arguments, _environment(environment), str(ROOT), ignores_hangup)


def _environment(changes: Mapping[str, str]) -> dict[str, str]:
    inherited = {
        name: text
        for name, text in os.environ.items()
        if name == SECRET_VARIABLE or not name.startswith("KVSCOPE_")
    }
    return {**inherited, **FULL_PAGES, "PYTHONUNBUFFERED": "1", **changes}
