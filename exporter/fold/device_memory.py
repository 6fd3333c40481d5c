"""What the engine says of its own device memory: the last samples, and out-of-memory errors.

A sample states a moment whole, so a gap makes none of it wrong; a reader asks how old it is.
"""

from collections import deque
from typing import NamedTuple, get_args

from exporter.fold.fold import Fold
from kvscope_events.events import DeviceMemorySampled, DeviceOutOfMemory
from kvscope_events.vocabulary import OutOfMemoryAction

HISTORY = 16
"""Samples kept per device: longer than NVML's process list is old."""
FRESH_NS = 10_000_000_000
"""A sample further away than this, of ten that should have come since, says nothing."""


class TimedSample(NamedTuple):
    """A sample and when its batch arrived, on our monotonic clock."""

    time_ns: int
    event: DeviceMemorySampled

    def is_fresh(self, now_ns: int) -> bool:
        """Whether it still says something of that moment."""
        return abs(now_ns - self.time_ns) <= FRESH_NS


class DeviceMemory(Fold):
    """By device; None is an engine without one."""

    name = "device_memory"

    def __init__(self) -> None:
        super().__init__(
            {DeviceMemorySampled: self._sampled, DeviceOutOfMemory: self._out_of_memory}
        )
        self.oom_events: dict[str, int] = dict.fromkeys(get_args(OutOfMemoryAction), 0)
        """By what the engine did."""
        self.activation_peaks: dict[str, int] = {}
        """Largest ever seen, by device."""
        self._history: dict[str | None, deque[TimedSample]] = {}

    def samples(self) -> dict[str | None, tuple[TimedSample, ...]]:
        """The last reports of each device, the newest last."""
        return {uuid: tuple(history) for uuid, history in self._history.items()}

    def _sampled(self, event: DeviceMemorySampled) -> None:
        uuid = event.device_uuid
        history = self._history.setdefault(uuid, deque(maxlen=HISTORY))
        history.append(TimedSample(self.batch.arrived_ns, event))
        if uuid is not None and event.activation_peak_bytes is not None:
            peak = self.activation_peaks.get(uuid, 0)
            self.activation_peaks[uuid] = max(peak, event.activation_peak_bytes)

    def _out_of_memory(self, event: DeviceOutOfMemory) -> None:
        self.oom_events[event.action] += 1
