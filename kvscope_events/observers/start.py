"""The parts of the start of a server's process; each lasts until the next one begins."""

import os
import time
from pathlib import Path

from kvscope_events.events import StartProgressed
from kvscope_events.observers.weights import WeightsRead
from kvscope_events.vocabulary import StartPhase


class Start:
    """Made when the device is about to be initialised. Noted from the server's thread, read from
    the publisher's."""

    def __init__(self, loader: str) -> None:
        """loader: module of the server's loader."""
        device_ns = time.time_ns()
        self._began_ns: dict[str, int] = {"device": device_ns}
        process_ns = _process_began_ns()
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


def _process_began_ns() -> int | None:
    """Unix time; None where there is no /proc."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.time_ns() - max(0, round(age * 1e9))
