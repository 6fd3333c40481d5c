"""The last half hour of each GPU's memory and limits, noted when something changes."""

import threading
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from kvscope_exporter.machine.gpu.sample import DeviceSample, GpuSample

KEPT_NS = 1800 * 10**9
MAX_NOTES = 2000
"""Changes kept of one GPU."""
CHANGE_BYTES = 64 << 20
"""A change of used memory below this is not noted."""


class GpuNote(NamedTuple):
    """One GPU at a moment; it holds until the next note."""

    time_ns: int
    """Monotonic."""
    used_bytes: int
    free_bytes: int
    processes: dict[int, int]
    """Bytes by pid, those that the driver states."""
    slowed: int
    """Bits of CLOCKS_EVENTS."""


class GpuHistory:
    """Noted by the poller, read by any thread."""

    def __init__(self) -> None:
        self._notes: dict[str, deque[GpuNote]] = {}
        self._lock = threading.Lock()

    def note(self, sample: GpuSample) -> None:
        """Another sample; noted where it differs from the one before."""
        with self._lock:
            for device in sample.devices:
                self._add(device, sample.taken_ns)

    def of(self, uuid: str) -> Sequence[GpuNote]:
        """The notes of a GPU, the oldest first."""
        with self._lock:
            return list(self._notes.get(uuid, ()))

    def uuids(self) -> list[str]:
        """The GPUs of which something is known."""
        with self._lock:
            return sorted(self._notes)

    def _add(self, device: DeviceSample, taken_ns: int) -> None:
        memory, listed = device.memory, device.processes
        if not device.up or memory is None:
            return
        notes = self._notes.setdefault(device.identity.uuid, deque(maxlen=MAX_NOTES))
        last = notes[-1] if notes else None
        note = GpuNote(
            time_ns=taken_ns,
            used_bytes=memory.total - memory.free,
            free_bytes=memory.free,
            processes=_bytes_of(device) if listed is not None else _before(last),
            slowed=device.sensors.clocks_events or 0,
        )
        if last is None or _differs(last, note):
            notes.append(note)
        while len(notes) > 1 and notes[1].time_ns < taken_ns - KEPT_NS:
            notes.popleft()


def _bytes_of(device: DeviceSample) -> dict[int, int]:
    listed = device.processes
    processes = () if listed is None else listed.processes
    return {use.pid: use.used_bytes for use in processes if use.used_bytes is not None}


def _before(last: GpuNote | None) -> dict[int, int]:
    return {} if last is None else last.processes


def _differs(last: GpuNote, note: GpuNote) -> bool:
    if last.slowed != note.slowed or last.processes.keys() != note.processes.keys():
        return True
    changes = [abs(last.used_bytes - note.used_bytes)]
    changes += [abs(last.processes[pid] - note.processes[pid]) for pid in note.processes]
    return max(changes) >= CHANGE_BYTES
