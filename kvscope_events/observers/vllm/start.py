"""The parts of a worker's start, by the methods that vLLM calls in turn."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from kvscope_events.events import StartProgressed
from kvscope_events.observers.vllm.weights import WeightsRead
from kvscope_events.vocabulary import StartPhase

PHASES: Mapping[str, StartPhase] = {
    "load_model": "weights",
    "determine_available_memory": "profile",
    "initialize_from_config": "pool",
    "compile_or_warm_up_model": "warm_up",
}
"""By the worker's method with which each begins; the process begins one, and its device another."""
LAST = "compile_or_warm_up_model"
"""Its return ends the start; in a worker without it, that of `initialize_from_config`."""


class Start:
    """Made when the device is about to be initialised. Noted from the worker's thread, read from
    the publisher's."""

    def __init__(self) -> None:
        device_ns = time.time_ns()
        self._began_ns: dict[str, int] = {"device": device_ns}
        process_ns = _process_began_ns()
        if process_ns is not None:
            self._began_ns = {"import": min(process_ns, device_ns), **self._began_ns}
        self._ended_ns: int | None = None
        self._weights = WeightsRead()

    def begin(self, phase: StartPhase) -> None:
        """Ignored after the start, when weights may be loaded once more."""
        if self._ended_ns is None and phase not in self._began_ns:
            self._began_ns = {**self._began_ns, phase: time.time_ns()}
            if phase == "weights":
                self._weights.begin()

    @property
    def reads_weights(self) -> bool:
        """Whether there is more to say every second."""
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
