"""Device memory families: NVML's sample and torch's figures, put together."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import Metric as Family

from kvscope_events.events import DeviceMemorySampled
from exporter.collect.families import Families
from exporter.collect.gpu import Values, key_of
from exporter.fold import DeviceMemory
from exporter.gpu import DeviceSample, GpuSample, components, headroom, owners
from exporter.host_memory import HostMemory


def collect_ledger_of_devices(
    families: Families, sample: GpuSample, fold: DeviceMemory, server_pid: int, now_ns: int
) -> Iterator[Family]:
    """Components from one moment, that of the process list; headroom from the newest figures."""
    fresh = fold.fresh(now_ns)
    parts: Values = {}
    headrooms: Values = {}
    processes: Values = {}
    process_bytes: Values = {}
    for device in sample.devices:
        key, uuid, listed = key_of(device), device.identity.uuid, device.processes
        torch = fresh.get(uuid)
        if device.memory is not None and torch is not None:
            bytes_left = headroom(device.memory, torch)
            if bytes_left is not None:
                headrooms[key] = bytes_left
        owned = owners(listed, _server_pids(uuid, fresh, server_pid))
        if owned is not None:
            processes |= {(*key, "server"): owned.server, (*key, "other"): owned.other}
            if owned.server_bytes is not None and owned.other_bytes is not None:
                process_bytes[(*key, "server")] = owned.server_bytes
                process_bytes[(*key, "other")] = owned.other_bytes
        memory = device.memory if listed is None else listed.memory
        if memory is None:
            continue
        if listed is not None:
            torch = fold.nearest(uuid, listed.taken_ns)
        split = components(memory, owned, torch) or {}
        parts |= {(*key, component): number for component, number in split.items()}
    for name, values in (
        ("kvscope_gpu_memory_component_bytes", parts),
        ("kvscope_gpu_memory_headroom_bytes", headrooms),
        ("kvscope_gpu_processes", processes),
        ("kvscope_gpu_process_memory_bytes", process_bytes),
    ):
        if values:
            yield families.table(name, values)


def collect_torch(
    families: Families, fold: DeviceMemory, devices: tuple[DeviceSample, ...], now_ns: int
) -> Iterator[Family]:
    """Of the engine's own reports; there without NVML, too, but then without the index."""
    indices = {device.identity.uuid: str(device.identity.index) for device in devices}
    indices |= {mig.uuid: str(d.identity.index) for d in devices for mig in d.mig}
    tables: dict[str, Values] = {name: {} for name in (*_TORCH_COLUMNS, *_TORCH_SINGLE)}
    peaks = tables.setdefault("kvscope_gpu_activation_peak_bytes", {})
    for uuid, event in fold.fresh(now_ns).items():
        if uuid is None:
            continue
        key = (indices.get(uuid, ""), uuid)
        for name, fields in _TORCH_COLUMNS.items():
            for kind, field in fields.items():
                if (value := getattr(event, field)) is not None:
                    tables[name][(*key, kind)] = value
        for name, field in _TORCH_SINGLE.items():
            if (value := getattr(event, field)) is not None:
                tables[name][key] = value
        if uuid in fold.activation_peaks:
            peaks[key] = fold.activation_peaks[uuid]
    for name, values in tables.items():
        if values:
            yield families.table(name, values)
    yield families.column("kvscope_engine_oom_events_total", fold.oom_events)


def collect_host(
    families: Families, host: HostMemory, fresh: Mapping[str | None, DeviceMemorySampled]
) -> Iterator[Family]:
    pinned = {event.pid: event.pinned_host_bytes for event in fresh.values()}
    known = [value for value in pinned.values() if value is not None]
    values = {
        "resident": host.resident,
        "pinned": sum(known) if known else None,
        "limit": host.limit,
        "usage": host.usage,
        "working_set": host.working_set,
        "unreclaimable": host.unreclaimable,
    }
    yield families.column(
        "kvscope_host_memory_bytes",
        {kind: value for kind, value in values.items() if value is not None},
    )


def _server_pids(
    uuid: str, fresh: Mapping[str | None, DeviceMemorySampled], server_pid: int
) -> set[int]:
    """The process that reported this device; nobody where an engine reports others only."""
    if uuid in fresh:
        return {fresh[uuid].pid}
    return set() if fresh else {server_pid}


_TORCH_COLUMNS = {
    "kvscope_gpu_torch_memory_bytes": {
        "allocated": "allocated_bytes",
        "active": "active_bytes",
        "reserved": "reserved_bytes",
        "requested": "requested_bytes",
        "inactive_split": "inactive_split_bytes",
    },
    "kvscope_gpu_torch_memory_peak_bytes": {
        "allocated": "allocated_peak_bytes",
        "reserved": "reserved_peak_bytes",
    },
}
"""Label value to field of the event."""
_TORCH_SINGLE = {
    "kvscope_gpu_torch_alloc_retries_total": "alloc_retries",
    "kvscope_gpu_torch_ooms_total": "ooms",
}
