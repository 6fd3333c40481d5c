"""The exporter's readings of the card, beside those of nvidia-smi at the same moment."""

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

import torch

from benchmarks.on_a_gpu.ceilings import PRODUCT
from benchmarks.on_a_gpu.report import Figure
from kvscope_exporter.machine.gpu import Cadence, GpuPoller
from kvscope_exporter.machine.gpu.sample import DeviceSample, Sensors

MIB, MEGA = 2**20, 1e6
WARM_SECONDS = 6.0
"""The card works as long before it is read: power is an average over a second."""
TARGET = 0.15
"""Both are read within a second: clocks and power change as fast, the others must be equal."""
SMI = (
    *("temperature.gpu", "temperature.memory", "power.draw.average", "enforced.power.limit"),
    *("clocks.sm", "memory.total", "memory.reserved", "memory.used", "memory.free"),
    *("clocks_event_reasons.active", "pcie.link.gen.current", "pcie.link.width.current"),
    *("ecc.errors.corrected.volatile.total", "ecc.errors.uncorrected.volatile.total"),
    *("remapped_rows.correctable", "remapped_rows.uncorrectable", "gpu_recovery_action"),
)


def figures(out: Path) -> list[Figure]:
    """Reads while the card multiplies; writes what was read, and what was absent, to `out`."""
    poller = GpuPoller(Cadence(memory=0.5, processes=1.0, sensors=0.5))
    poller.start()
    product = torch.randn(PRODUCT, PRODUCT, device="cuda", dtype=torch.bfloat16)
    until = time.monotonic() + WARM_SECONDS
    with ThreadPoolExecutor(1) as beside:
        asked: Future[dict[str, str]] | None = None
        while asked is None or not asked.done():
            for _ in range(50):
                torch.mm(product, product)
            torch.cuda.synchronize()
            if asked is None and time.monotonic() > until:
                asked = beside.submit(nvidia_smi)
        theirs = asked.result()
    sample = poller.read().sample
    poller.stop()
    assert sample is not None, "NVML could not be read: `kvscope doctor` says why"
    (device,) = sample.devices
    names = [field.name for field in fields(Sensors)]
    absent = [name for name in names if getattr(device.sensors, name) is None]
    lines = [f"driver {sample.driver_version}, CUDA {sample.cuda_version}", f"{device}"]
    lines += [f"nvidia-smi {name}: {text}" for name, text in theirs.items()]
    lines.append(f"absent here: {', '.join(absent) or 'nothing'}")
    (out / "card.txt").write_text("\n".join(lines) + "\n")
    found = [Figure("readings that this card gives", len(names) - len(absent), "")]
    for name, ours, smi in both(device, theirs):
        difference = abs(ours - smi) / max(abs(smi), 1.0)
        named = f"{name}, {ours:.6g}, differs from nvidia-smi's by"
        found.append(Figure(named, difference, "of it", TARGET))
    return found


def both(device: DeviceSample, theirs: dict[str, str]) -> Iterator[tuple[str, float, float]]:
    """Name, the exporter's and nvidia-smi's value, where both have one."""
    sensors, memory = device.sensors, device.memory
    assert memory is not None
    ours = {
        "temperature.gpu": sensors.temperature_celsius,
        "temperature.memory": sensors.memory_temperature_celsius,
        "power.draw.average": sensors.power_watts,
        "enforced.power.limit": sensors.power_limit_watts,
        "clocks.sm": _over(sensors.sm_clock_hertz, MEGA),
        "memory.total": _over(memory.total, MIB),
        "memory.reserved": _over(memory.reserved, MIB),
        "memory.used": _over(memory.used, MIB),
        "memory.free": _over(memory.free, MIB),
        "clocks_event_reasons.active": sensors.clocks_events,
        "ecc.errors.corrected.volatile.total": sensors.ecc_corrected,
        "ecc.errors.uncorrected.volatile.total": sensors.ecc_uncorrected,
    }
    for name, value in ours.items():
        smi = _number(theirs.get(name, ""))
        if value is not None and smi is not None:
            yield name, value, smi


def nvidia_smi() -> dict[str, str]:
    """Its answers, by query; one query at a time, since it refuses all for an unknown one."""
    with ThreadPoolExecutor(len(SMI)) as beside:
        return dict(zip(SMI, beside.map(_asked, SMI), strict=True))


def _asked(name: str) -> str:
    command = ["nvidia-smi", f"--query-gpu={name}", "--format=csv,noheader,nounits"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.stdout.strip()


def _over(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def _number(text: str) -> float | None:
    try:
        return float(int(text, 16)) if text.startswith("0x") else float(text)
    except ValueError:  # [N/A]
        return None
