"""GPU families from the poller's last sample. A device that is not up has only the series `up`."""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from prometheus_client.core import Metric as Family

from kvscope_exporter.catalogue.gpu_sets import CLOCKS_EVENTS
from kvscope_exporter.collect.families import Families
from kvscope_exporter.machine.gpu import DeviceSample, GpuSample, Reading

Key = tuple[str, ...]
Values = dict[Key, float]


def collect_nvml(families: Families, reading: Reading) -> Iterator[Family]:
    """Families about the poller itself, present even while NVML does not answer."""
    last = reading.last
    if not reading.has_library:  # as on a machine without a GPU: not a failure
        return
    yield families.single("kvscope_gpu_nvml_up", reading.sample is not None)
    if last is not None:
        yield families.single("kvscope_gpu_sample_age_seconds", families.age(last.taken_ns))
        yield families.single("kvscope_gpu_sample_duration_seconds", last.duration_seconds)
    if reading.errors:
        yield families.table(
            "kvscope_gpu_nvml_errors_total",
            {tuple(key): count for key, count in reading.errors.items()},
        )
    if reading.xids:
        counts = {tuple(key): count.events for key, count in reading.xids.items()}
        yield families.table("kvscope_gpu_xid_events_total", counts)
        ages = {tuple(key): families.age(count.last_ns) for key, count in reading.xids.items()}
        yield families.table("kvscope_gpu_xid_last_age_seconds", ages)


def collect_gpus(
    families: Families, sample: GpuSample, shown: Sequence[DeviceSample]
) -> Iterator[Family]:
    """Families over the devices shown; a family without any value is left out."""
    if not shown:
        return
    yield families.fact("kvscope_gpu_info", *(_facts(sample, d) for d in shown))
    yield families.table("kvscope_gpu_up", {key_of(d): d.up for d in shown})
    devices = [(key_of(device), device) for device in shown if device.up]
    for name, read in _SINGLE.items():
        values = {key: value for key, d in devices if (value := read(d)) is not None}
        if values:
            yield families.table(name, values)
    for name, read_column in _COLUMNS.items():
        table = {(*key, *at): value for key, d in devices for at, value in read_column(d).items()}
        if table:
            yield families.table(name, table)


def key_of(device: DeviceSample) -> Key:
    """The values of the labels gpu and uuid."""
    return (str(device.identity.index), device.identity.uuid)


def _facts(sample: GpuSample, device: DeviceSample) -> dict[str, str]:
    identity = device.identity
    labels = {
        "gpu": str(identity.index),
        "uuid": identity.uuid,
        "name": identity.name,
        "pci_bus_id": identity.pci_bus_id,
        "driver_version": sample.driver_version,
        "cuda_version": sample.cuda_version,
    }
    return {label: value for label, value in labels.items() if value}


def _of_memory(field: str) -> Callable[[DeviceSample], float | None]:
    return lambda device: None if device.memory is None else getattr(device.memory, field)


def _of_rows(field: str) -> Callable[[DeviceSample], float | None]:
    def read(device: DeviceSample) -> float | None:
        rows = device.sensors.remapped_rows
        return None if rows is None else getattr(rows, field)

    return read


def _used_ratio(device: DeviceSample) -> float | None:
    memory = device.memory
    if memory is None or memory.used is None or memory.reserved is None:
        return None
    return memory.used / (memory.total - memory.reserved)


def _clocks_events(device: DeviceSample) -> Values:
    bits = device.sensors.clocks_events
    if bits is None:
        return {}
    return {(reason,): bool(bits & bit) for reason, bit in CLOCKS_EVENTS.items()}


def _ecc_errors(device: DeviceSample) -> Values:
    sensors = device.sensors
    return _known({"corrected": sensors.ecc_corrected, "uncorrected": sensors.ecc_uncorrected})


def _remapped_rows(device: DeviceSample) -> Values:
    rows = device.sensors.remapped_rows
    if rows is None:
        return {}
    return {("correctable",): rows.correctable, ("uncorrectable",): rows.uncorrectable}


def _pcie(device: DeviceSample) -> Values:
    sensors = device.sensors
    return _known({"sent": sensors.pcie_sent_bytes, "received": sensors.pcie_received_bytes})


def _mig_memory(device: DeviceSample) -> Values:
    values: Values = {}
    for mig in device.mig:
        memory = mig.memory
        states = {"used": memory.used, "reserved": memory.reserved, "free": memory.free}
        if None not in states.values():
            known = _known(states)
            values |= {(str(mig.instance), *state): number for state, number in known.items()}
    return values


def _known(values: dict[str, int | None]) -> Values:
    return {(label,): value for label, value in values.items() if value is not None}


_SINGLE: dict[str, Callable[[DeviceSample], float | None]] = {
    "kvscope_gpu_memory_total_bytes": _of_memory("total"),
    "kvscope_gpu_memory_used_bytes": _of_memory("used"),
    "kvscope_gpu_memory_free_bytes": _of_memory("free"),
    "kvscope_gpu_memory_used_ratio": _used_ratio,
    "kvscope_gpu_utilization_ratio": attrgetter("utilization_ratio"),
    "kvscope_gpu_temperature_celsius": attrgetter("sensors.temperature_celsius"),
    "kvscope_gpu_memory_temperature_celsius": attrgetter("sensors.memory_temperature_celsius"),
    "kvscope_gpu_power_watts": attrgetter("sensors.power_watts"),
    "kvscope_gpu_power_limit_watts": attrgetter("sensors.power_limit_watts"),
    "kvscope_gpu_energy_joules_total": attrgetter("sensors.energy_joules"),
    "kvscope_gpu_sm_clock_hertz": attrgetter("sensors.sm_clock_hertz"),
    "kvscope_gpu_row_remap_pending": _of_rows("pending"),
    "kvscope_gpu_row_remap_failed": _of_rows("failed"),
    "kvscope_gpu_recovery_action": attrgetter("sensors.recovery_action"),
    "kvscope_gpu_pcie_link_ratio": attrgetter("sensors.pcie_link_ratio"),
}
"""Families of one series per device."""

_COLUMNS: dict[str, Callable[[DeviceSample], Values]] = {
    "kvscope_gpu_mig_memory_bytes": _mig_memory,
    "kvscope_gpu_clocks_event_active": _clocks_events,
    "kvscope_gpu_ecc_errors_total": _ecc_errors,
    "kvscope_gpu_remapped_rows_total": _remapped_rows,
    "kvscope_gpu_pcie_bytes_total": _pcie,
}
"""Families with more labels than the device's."""
