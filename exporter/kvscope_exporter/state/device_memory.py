"""The engine's reports of its own device: its start, the last samples, out-of-memory errors.

A sample is complete in itself, so a gap does not make it wrong; a reader checks its age.
"""

from collections import deque
from typing import NamedTuple, get_args

from kvscope_events.events import (
    DeviceMemorySampled,
    DeviceOutOfMemory,
    StartProgressed,
    StartupProfiled,
)
from kvscope_events.vocabulary import OutOfMemoryAction, StartPhase
from kvscope_exporter.state.call_fold import CallFold

HISTORY = 16
"""Samples kept per device: longer than NVML's process list is old."""
MAX_DEVICES = 64
"""Devices of one engine: more than a host has, MIG instances included. The names come from a peer.
"""
FRESH_NS = 10_000_000_000
"""A sample further away than this is not used: ten others should have come since."""


class TimedSample(NamedTuple):
    """A sample and when its batch arrived, on our monotonic clock."""

    time_ns: int
    event: DeviceMemorySampled

    def is_fresh(self, now_ns: int) -> bool:
        """Whether the sample is close enough to that moment to be used for it."""
        return abs(now_ns - self.time_ns) <= FRESH_NS


class DeviceMemory(CallFold):
    """State by device; None is the key of an engine without one. Devices beyond 64 are left out."""

    name = "device_memory"

    def __init__(self) -> None:
        super().__init__()
        self.oom_events: dict[str, int] = dict.fromkeys(get_args(OutOfMemoryAction), 0)
        """Out-of-memory errors by what the engine did."""
        self.activation_peaks: dict[str, int] = {}
        """Largest activation peak reported so far, by device."""
        self.startup_terms: dict[str, int] = {}
        """A worker's measurements before there was a pool, by SizingTerm; empty: not reported."""
        self.start = StartProgressed({})
        """A worker's start."""
        self._history: dict[str | None, deque[TimedSample]] = {}

    def samples(self) -> dict[str | None, tuple[TimedSample, ...]]:
        """The last reports of each device, the newest last."""
        return {uuid: tuple(history) for uuid, history in self._history.items()}

    def start_seconds(self) -> dict[str, float]:
        """Time for each part of a worker's start that has begun; the present one lasts until the
        worker was last heard."""
        began, ended_ns = self.start.began_ns, self.start.ended_ns
        phases = [phase for phase in get_args(StartPhase) if phase in began]
        ends = [*(began[phase] for phase in phases[1:]), ended_ns or self.batch.wall_ns]
        return {
            phase: max(0, end_ns - began[phase]) / 1e9
            for phase, end_ns in zip(phases, ends, strict=False)
        }

    def on_device_memory_sampled(self, event: DeviceMemorySampled) -> None:
        uuid = event.device_uuid
        history = self._history.get(uuid)
        if history is None:
            if len(self._history) == MAX_DEVICES:
                return
            history = self._history[uuid] = deque(maxlen=HISTORY)
        history.append(TimedSample(self.batch.arrived_ns, event))
        if uuid is not None and event.activation_peak_bytes is not None:
            peak = self.activation_peaks.get(uuid, 0)
            self.activation_peaks[uuid] = max(peak, event.activation_peak_bytes)

    def on_device_out_of_memory(self, event: DeviceOutOfMemory) -> None:
        self.oom_events[event.action] += 1

    def on_startup_profiled(self, event: StartupProfiled) -> None:
        self.startup_terms = event.memory_terms

    def on_start_progressed(self, event: StartProgressed) -> None:
        self.start = event
