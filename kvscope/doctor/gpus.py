"""The driver, its library, and the readings that each GPU allows."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kvscope.doctor import Finding
from kvscope.doctor.host import has_nvidia
from kvscope_exporter import words
from kvscope_exporter.machine.gpu import DeviceSample, GpuPoller, GpuSample, Place, binding_problem

POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class GpuReport:
    """One GPU, described for people."""

    index: int
    name: str
    memory: str
    processes: str
    readable: tuple[str, ...]
    refused: tuple[str, ...]
    """Readings that the GPU does not allow, each with the reason."""
    up: bool


def gpu_findings(poller: GpuPoller, timeout: float, root: Path = Path("/")) -> Iterator[Finding]:
    """Findings on binding, library and driver; waits for the first answer of a started poller."""
    hidden = binding_problem()
    if hidden is not None:
        yield Finding("binding", "problem", hidden)
        return
    yield Finding("binding", "ok", f"nvidia-ml-py {_version()}")
    sample = _first_sample(poller, timeout)
    if sample is not None:
        cuda = sample.cuda_version or "version unknown"
        text = f"{sample.driver_version or 'unknown version'}, CUDA {cuda}"
        yield Finding("driver", "ok", f"{text}; {len(sample.devices)} GPU(s) watched")
        if sample.remark is not None:
            yield Finding("visible GPUs", "note", sample.remark)
        yield from _device_findings(sample)
    elif poller.problem is None:
        text = f"NVML did not answer within {timeout:g} s: the driver hangs"
        yield Finding("driver", "problem", text)
    elif poller.state == "off" and not has_nvidia(root):
        text = "no NVIDIA GPU here: its metrics are absent, all others work"
        yield Finding("driver", "note", text)
    elif poller.state == "off":
        text = "libnvidia-ml.so.1 is missing, though the driver is there: in a container, ask for "
        yield Finding("driver", "problem", text + "the capability `utility`")
    else:
        yield Finding("driver", "problem", poller.problem)


def _device_findings(sample: GpuSample) -> Iterator[Finding]:
    for device in sample.devices:
        subject = f"GPU {device.identity.index}"
        if not device.up:
            text = "is lost or waits for a reset: see nvidia-smi -q"
            yield Finding(subject, "problem", text)
        pids = _pids(device)
        if pids and not _visible(pids):
            text = f"none of its {len(pids)} processes is visible here: share their pid namespace"
            yield Finding(subject, "note", text)


def gpu_reports(sample: GpuSample, refused: Mapping[tuple[Place, str], str]) -> Iterator[GpuReport]:
    """Readings that each GPU allows. refused: `GpuPoller.refused`."""
    for device in sample.devices:
        readable, missing = [], []
        for reading, calls in _READINGS.items():
            if _has(device, reading, refused):
                readable.append(reading)
            else:
                missing.append(f"{reading} ({_reason(device, calls, refused)})")
        yield GpuReport(
            index=device.identity.index,
            name=device.identity.name or "unnamed",
            memory=_memory(device),
            processes=_processes(device),
            readable=tuple(readable) if device.up else (),
            refused=tuple(missing) if device.up else (),
            up=device.up,
        )


_READINGS: dict[str, tuple[str, ...]] = {
    "memory": ("DeviceGetMemoryInfo_v2", "DeviceGetMemoryInfo"),
    "reserve": ("DeviceGetMemoryInfo_v2",),
    "processes": ("DeviceGetComputeRunningProcesses_v2", "DeviceGetComputeRunningProcesses_v3"),
    "bytes of processes": (
        *("DeviceGetComputeRunningProcesses_v2", "DeviceGetComputeRunningProcesses_v3"),
    ),
    "utilization": ("DeviceGetUtilizationRates",),
    "temperature": ("DeviceGetTemperature", "DeviceGetTemperatureV"),
    "memory temperature": ("DeviceGetFieldValues",),
    "power": ("DeviceGetPowerUsage",),
    "energy": ("DeviceGetTotalEnergyConsumption",),
    "clocks": ("DeviceGetClockInfo",),
    "clock events": (
        *("DeviceGetCurrentClocksThrottleReasons", "DeviceGetCurrentClocksEventReasons"),
    ),
    "ECC": ("DeviceGetTotalEccErrors",),
    "remapped rows": ("DeviceGetRemappedRows",),
    "recovery action": ("DeviceGetFieldValues",),
    "PCIe": ("DeviceGetFieldValues",),
    "PCIe link": (
        *("DeviceGetCurrPcieLinkWidth", "DeviceGetCurrPcieLinkGeneration"),
        *("DeviceGetMaxPcieLinkWidth", "DeviceGetMaxPcieLinkGeneration"),
    ),
    "XIDs": ("DeviceRegisterEvents",),
}
"""The calls behind each reading; the one whose refusal explains most comes first."""


def _has(device: DeviceSample, reading: str, refused: Mapping[tuple[Place, str], str]) -> bool:
    if reading == "XIDs":  # known only when they happen
        return (device.identity.index, "DeviceRegisterEvents") not in refused
    sensors, listed = device.sensors, device.processes
    sizes = [] if listed is None else [process.used_bytes for process in listed.processes]
    values: dict[str, object] = {
        "memory": device.memory,
        "reserve": None if device.memory is None else device.memory.reserved,
        "processes": listed,
        "bytes of processes": None if listed is None or None in sizes else listed,
        "utilization": device.utilization_ratio,
        "temperature": sensors.temperature_celsius,
        "memory temperature": sensors.memory_temperature_celsius,
        "power": sensors.power_watts,
        "energy": sensors.energy_joules,
        "clocks": sensors.sm_clock_hertz,
        "clock events": sensors.clocks_events,
        "ECC": sensors.ecc_uncorrected,
        "remapped rows": sensors.remapped_rows,
        "recovery action": sensors.recovery_action,
        "PCIe": sensors.pcie_sent_bytes,
        "PCIe link": sensors.pcie_link_ratio,
    }
    return values[reading] is not None


def _reason(
    device: DeviceSample, calls: tuple[str, ...], refused: Mapping[tuple[Place, str], str]
) -> str:
    for call in calls:
        code = refused.get((device.identity.index, call))
        if code is not None:
            return code.replace("_", " ")
    return "not available"


def _memory(device: DeviceSample) -> str:
    if device.mig:
        return f"MIG: {len(device.mig)} instance(s)"
    memory = device.memory
    if memory is None:
        return "unknown"
    return f"{words.size(memory.free)} of {words.size(memory.total)} free"


def _processes(device: DeviceSample) -> str:
    if device.processes is None:
        return "unknown"
    pids = _pids(device)
    return f"{len(pids)}, {_visible(pids)} visible here" if pids else "none"


def _pids(device: DeviceSample) -> list[int]:
    listed = device.processes
    return [] if listed is None else [process.pid for process in listed.processes]


def _visible(pids: list[int]) -> int:
    return sum(Path(f"/proc/{pid}").exists() for pid in pids)


def _first_sample(poller: GpuPoller, timeout: float) -> GpuSample | None:
    end = time.monotonic() + timeout
    while True:
        sample = poller.read().sample
        settled = sample is not None or poller.problem is not None
        if settled or time.monotonic() >= end:
            return sample
        time.sleep(POLL_SECONDS)


def _version() -> str:
    try:
        return version("nvidia-ml-py")
    except PackageNotFoundError:
        return "of unknown version"
