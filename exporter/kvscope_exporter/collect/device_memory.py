"""Device memory families, from NVML's sample and torch's figures."""

from collections.abc import Iterator, Sequence

from prometheus_client.core import Metric as Family

from kvscope_events.events import Hello
from kvscope_exporter.collect.engine_memory import EngineMemory
from kvscope_exporter.collect.families import Families
from kvscope_exporter.collect.gpu import Values, key_of
from kvscope_exporter.machine.gpu import DeviceSample, components, headroom, owners
from kvscope_exporter.state import DeviceMemory


def collect_ledger_of_devices(
    families: Families,
    devices: Sequence[DeviceSample],
    engines: EngineMemory,
    pids: set[int],
    now_ns: int,
) -> Iterator[Family]:
    """Components at the moment of the process list; headroom from the newest figures.

    pids: the server's processes; all that use a device count, even those that do not report it.
    """
    fresh = engines.fresh(now_ns)
    parts: Values = {}
    headrooms: Values = {}
    processes: Values = {}
    process_bytes: Values = {}
    for device in devices:
        key, uuid, listed = key_of(device), device.identity.uuid, device.processes
        torch = fresh.get(uuid)
        if device.memory is not None and torch is not None:
            bytes_left = headroom(device.memory, torch)
            if bytes_left is not None:
                headrooms[key] = bytes_left
        # A server that reports only other devices has no process on this one.
        ours = engines.pids(uuid, now_ns)
        if ours is not None and listed is not None:
            ours |= pids & {process.pid for process in listed.processes}
        owned = owners(listed, pids if ours is None else ours)
        if owned is not None:
            processes |= {(*key, "server"): owned.server, (*key, "other"): owned.other}
            if owned.server_bytes is not None and owned.other_bytes is not None:
                process_bytes[(*key, "server")] = owned.server_bytes
                process_bytes[(*key, "other")] = owned.other_bytes
        memory = device.memory if listed is None else listed.memory
        if memory is None:
            continue
        if listed is not None:
            torch = engines.nearest(uuid, listed.taken_ns)
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
    families: Families, engines: EngineMemory, devices: Sequence[DeviceSample], now_ns: int
) -> Iterator[Family]:
    """Families from the engines' own reports; without NVML they lack the device's index."""
    indices = {device.identity.uuid: str(device.identity.index) for device in devices}
    indices |= {mig.uuid: str(d.identity.index) for d in devices for mig in d.mig}
    tables: dict[str, Values] = {name: {} for name in _TORCH}
    peaks = tables.setdefault("kvscope_gpu_activation_peak_bytes", {})
    for uuid, event in engines.fresh(now_ns).items():
        key = (indices.get(uuid, ""), uuid)
        for name, field in _TORCH.items():
            if (value := getattr(event, field)) is not None:
                tables[name][key] = value
        if uuid in engines.activation_peaks:
            peaks[key] = engines.activation_peaks[uuid]
    for name, values in tables.items():
        if values:
            yield families.table(name, values)


def collect_start(families: Families, memory: DeviceMemory, _worker: Hello) -> Iterator[Family]:
    yield families.column("kvscope_start_phase_seconds", memory.start_seconds())
    start = memory.start
    if start.weights_file_bytes is not None:
        yield families.single("kvscope_start_weights_file_bytes", start.weights_file_bytes)
    if start.weights_read_bytes is not None:
        yield families.single("kvscope_start_weights_read_bytes", start.weights_read_bytes)


def collect_out_of_memory(
    families: Families, memory: DeviceMemory, _engine: Hello
) -> Iterator[Family]:
    yield families.column("kvscope_engine_oom_events_total", memory.oom_events)


_TORCH = {
    **{
        f"kvscope_gpu_torch_{figure}_bytes": f"{figure}_bytes"
        for figure in (
            "allocated",
            "active",
            "reserved",
            "requested",
            "inactive_split",
            "allocated_peak",
            "reserved_peak",
        )
    },
    "kvscope_gpu_torch_alloc_retries_total": "alloc_retries",
    "kvscope_gpu_torch_ooms_total": "ooms",
}
"""Each family, and the event's field that it shows."""
