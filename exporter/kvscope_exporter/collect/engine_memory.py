"""The device memory that the engines of a server report, summed by device."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kvscope_events.events import DeviceMemorySampled
from kvscope_exporter.state import TimedSample

_SUMMED = (
    "weights_bytes",
    "kv_pool_bytes",
    "allocated_bytes",
    "active_bytes",
    "reserved_bytes",
    "requested_bytes",
    "inactive_split_bytes",
    "allocated_peak_bytes",
    "reserved_peak_bytes",
    "alloc_retries",
    "ooms",
)


class EngineMemory:
    """Samples by engine and device, copied while the folds were held."""

    def __init__(
        self,
        samples: Sequence[Mapping[str | None, Sequence[TimedSample]]],
        peaks: Iterable[Mapping[str, int]],
    ) -> None:
        self._samples = samples
        self.activation_peaks: dict[str, int] = {}
        """The largest step of any engine, by device."""
        for by_device in peaks:
            for uuid, peak in by_device.items():
                self.activation_peaks[uuid] = max(peak, self.activation_peaks.get(uuid, 0))

    def fresh(self, now_ns: int) -> dict[str, DeviceMemorySampled]:
        """The newest figures of each device, without those of engines that have fallen silent."""
        newest: dict[str, list[DeviceMemorySampled]] = {}
        for event in self._newest(now_ns):
            if event.device_uuid is not None:
                newest.setdefault(event.device_uuid, []).append(event)
        return {uuid: _sum(events) for uuid, events in newest.items()}

    def nearest(self, device_uuid: str, time_ns: int) -> DeviceMemorySampled | None:
        """The figures nearest to a moment; None without any close to it."""
        near = []
        for by_device in self._samples:
            history = by_device.get(device_uuid)
            if not history:
                continue
            sample = min(history, key=lambda sample: abs(sample.time_ns - time_ns))
            if sample.is_fresh(time_ns):
                near.append(sample.event)
        return _sum(near) if near else None

    def pids(self, device_uuid: str, now_ns: int) -> set[int] | None:
        """The pids that report this device; None if no engine reports any device."""
        events = list(self._newest(now_ns))
        if not events:
            return None
        return {event.pid for event in events if event.device_uuid == device_uuid}

    @property
    def devices(self) -> set[str]:
        """The devices that any engine has reported."""
        return {uuid for by_device in self._samples for uuid in by_device if uuid is not None}

    def _newest(self, now_ns: int) -> Iterator[DeviceMemorySampled]:
        for by_device in self._samples:
            for history in by_device.values():
                if history and history[-1].is_fresh(now_ns):
                    yield history[-1].event


def _sum(events: Sequence[DeviceMemorySampled]) -> DeviceMemorySampled:
    """Sums for a device that several engines share; None if one of them has no figure."""
    if len(events) == 1:
        return events[0]
    sums: dict[str, int | None] = {}
    for field in _SUMMED:
        values = [getattr(event, field) for event in events]
        sums[field] = None if None in values else sum(values)
    return DeviceMemorySampled(pid=events[0].pid, device_uuid=events[0].device_uuid, **sums)  # type: ignore[arg-type]
