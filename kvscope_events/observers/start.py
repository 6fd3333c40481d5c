"""The parts of the start of a server's process; each lasts until the next one begins."""

import os
import time
from pathlib import Path

from kvscope_events.events import StartProgressed
from kvscope_events.observers.weights import WeightsRead
from kvscope_events.vocabulary import StartPhase

_TITLES = (b"VLLM::", b"sglang::")
"""Beginnings of what the servers call the processes that they start."""
_MOST_ANCESTORS = 4


class Start:
    """Made when the device is about to be initialised. Noted from the server's thread, read from
    the publisher's."""

    def __init__(self, loader: str) -> None:
        """loader: module of the server's loader."""
        device_ns = time.time_ns()
        self._began_ns: dict[str, int] = {"device": device_ns}
        process_ns = _server_began_ns()
        if process_ns is not None:
            self._began_ns = {"import": min(process_ns, device_ns), **self._began_ns}
        self._ended_ns: int | None = None
        self._weights = WeightsRead(loader)

    def begin(self, phase: StartPhase) -> None:
        """Ignored after the start, when weights may be loaded once more."""
        if self._ended_ns is None and phase not in self._began_ns:
            self._began_ns = {**self._began_ns, phase: time.time_ns()}
            if phase == "weights":
                self._weights.begin()

    @property
    def has_ended(self) -> bool:
        return self._ended_ns is not None

    @property
    def reads_weights(self) -> bool:
        """Whether the present part is that of the weights."""
        return [*self._began_ns][-1] == "weights"

    def loaded(self) -> None:
        self._weights.end()

    def end(self) -> None:
        if self._ended_ns is None:
            self._ended_ns = time.time_ns()

    def event(self) -> StartProgressed:
        weights = self._weights
        return StartProgressed(
            self._began_ns, self._ended_ns, weights.read_bytes, weights.file_bytes
        )


def _server_began_ns() -> int | None:
    """Unix time when the first process of this one's server began: that of the API, which imports
    for minutes before it starts an engine. None where there is no /proc."""
    import multiprocessing  # a server that starts processes has it already

    pid = os.getpid()
    try:
        is_child = multiprocessing.parent_process() is not None or _is_child(pid)
        for _ in range(_MOST_ANCESTORS):
            if not is_child:
                break
            pid = _parent(pid)
            is_child = _is_child(pid)
        return _began_ns(pid)
    except (OSError, ValueError, IndexError):
        return None


def _is_child(pid: int) -> bool:
    """Whether a process was started by a process of the same server: its title says so, or it is a
    fork that has its parent's command line."""
    command = _command(pid)
    if command.startswith(_TITLES) or b"multiprocessing" in command:
        return True
    parent = _parent(pid)
    return parent > 1 and command == _command(parent)


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _parent(pid: int) -> int:
    return int(_fields(pid)[1])


def _began_ns(pid: int) -> int:
    ticks = int(_fields(pid)[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time_ns() - max(0, round(age * 1e9))


def _fields(pid: int) -> list[str]:
    """Those behind the name, which may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
