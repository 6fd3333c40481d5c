"""A server as an operator starts it: with a terminal and a log of its own, and what it starts."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import httpx

from tests.support.waiting import wait_for

START_SECONDS = 400.0
"""About 20 s on two idle cores; other tests run beside."""
STOP_SECONDS = 30.0
_Server = TypeVar("_Server", bound="Operated")


@dataclass
class Operated:
    """A running server, or what is left of it."""

    process: "subprocess.Popen[bytes]"
    url: str
    log_file: Path
    keyboard: int
    """File descriptor: what is written there was typed."""
    software: ClassVar[str]
    """As it stands in its commands."""
    busy: ClassVar[tuple[str, ...]]
    """Gauges of its page that are 0 while nothing runs or waits."""

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def alive(self) -> bool:
        return self.process.poll() is None

    def page(self) -> str:
        return httpx.get(f"{self.url}/metrics", timeout=30).text

    def post(self, path: str, **body: Any) -> Any:
        """The JSON of the answer; fails unless it is a 200."""
        answer = httpx.post(f"{self.url}{path}", json=body, timeout=120)
        assert answer.status_code == 200, (
            f"{path}: {answer.status_code} {answer.text}\n{self.tail()}"
        )
        return answer.json() if answer.content else None

    def wait_idle(self) -> None:
        """Until it says that nothing runs and nothing waits, on two pages in a row."""
        for _ in range(2):
            wait_for(self._idle, f"{self.software} is idle\n{self.tail()}", 60)
            time.sleep(0.2)

    def tail(self, lines: int = 60) -> str:
        said = [line for line in self.log.splitlines() if " Route: " not in line]
        return "\n".join(said[-lines:])

    def descendants(self) -> list[int]:
        """Processes below ours, by pid, parents first."""
        return _descendants(self.process.pid)

    def members(self) -> list[int]:
        """Processes of the session that ours began, also those whose parent is gone."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._has(pid)]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def press_ctrl_c(self) -> None:
        """The terminal sends SIGINT to the command and all that it has started."""
        os.write(self.keyboard, b"\x03")

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        """Until it answers; fails if it ends instead."""
        name = self.log_file.stem
        wait_for(lambda: _answers(self), f"{name} starts", seconds)
        assert self.alive(), f"{name} ended with {self.process.returncode}:\n{self.tail(200)}"

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        return self.process.wait(seconds)

    def _has(self, pid: int) -> bool:
        try:
            return os.getsid(pid) == self.process.pid
        except ProcessLookupError:
            return False

    def _idle(self) -> bool:
        page = self.page()
        busy = [
            line
            for line in page.splitlines()
            if line.partition("{")[0] in self.busy and float(line.rsplit(" ", 1)[1])
        ]
        return not busy


@contextmanager
def operated(
    kind: type[_Server],
    command: list[str],
    environment: Mapping[str, str],
    port: int,
    folder: Path,
    name: str,
    start_seconds: float = START_SECONDS,
) -> Iterator[_Server]:
    """The command, once the server on `port` answers; ended afterwards with all that it started."""
    with begun(kind, command, environment, port, folder, name) as server:
        server.wait_ready(start_seconds)
        yield server


@contextmanager
def begun(
    kind: type[_Server],
    command: list[str],
    environment: Mapping[str, str],
    port: int,
    folder: Path,
    name: str,
) -> Iterator[_Server]:
    """The same from its first moment on.

    It has a terminal of its own, as if it had been typed.
    """
    log_file = folder / f"{name}.log"
    keyboard, terminal = os.openpty()
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            ["setsid", "--ctty", *command],  # becomes the command, under the same pid
            env=dict(environment),
            cwd=folder,  # not the checkout, whose folders are packages
            stdin=terminal,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    server = kind(process, f"http://127.0.0.1:{port}", log_file, keyboard)
    try:
        yield server
    finally:
        end(server)
        os.close(keyboard)
        os.close(terminal)


def end(server: Operated) -> None:
    """SIGTERM, then SIGKILL to whatever of it is left."""
    left = {*server.descendants(), *server.members()}
    if server.alive():
        server.process.terminate()
        try:
            server.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            server.process.kill()
            server.process.wait()
    for pid in {*server.members(), *(pid for pid in left if _runs(pid, server.software))}:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _answers(server: Operated) -> bool:
    if not server.alive():
        return True  # no reason to wait any longer
    try:
        return httpx.get(f"{server.url}/health", timeout=2).status_code == 200
    except httpx.HTTPError:
        time.sleep(0.1)  # it needs the processors itself
        return False


def _descendants(pid: int) -> list[int]:
    found = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *_descendants(int(child))]
    except OSError:
        return found  # it has just ended
    return found


def _runs(pid: int, software: str) -> bool:
    """Whether a process of ours still has this pid."""
    try:
        return software in Path(f"/proc/{pid}/cmdline").read_text(errors="replace").lower()
    except OSError:
        return False
