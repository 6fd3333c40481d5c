"""The card's memory by NVML, asked directly, and what a page of kvscope's says beside it."""

from typing import NamedTuple

import pynvml
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.on_a_gpu.report import Figure

COMPONENT = "kvscope_gpu_memory_component_bytes"
TORCH = "kvscope_gpu_torch_{}_bytes"
OF_THE_SERVER = frozenset(
    ("weights", "kv_pool", "torch_live_other", "torch_pending", "torch_cached", "non_torch")
)
TARGET = 0.01


class Memory(NamedTuple):
    """Bytes of the first card."""

    total: int
    reserved: int
    """By the driver."""
    used: int
    free: int
    processes: int
    """Sum over all processes that NVML lists; 0 where it lists none."""


def read() -> Memory:
    """Raises pynvml.NVMLError where there is no card."""
    pynvml.nvmlInit()
    try:
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        memory = pynvml.nvmlDeviceGetMemoryInfo(card, version=pynvml.nvmlMemory_v2)
        running = pynvml.nvmlDeviceGetComputeRunningProcesses(card)
        held = sum(process.usedGpuMemory or 0 for process in running)
        return Memory(memory.total, memory.reserved, memory.used, memory.free, held)
    finally:
        pynvml.nvmlShutdown()


def beside(page: str, nvml: Memory) -> list[Figure]:
    """Components of the card's memory on the page, held to NVML's figures of the same moment."""
    parts = {
        labels["component"]: value for name, labels, value in samples(page) if name == COMPONENT
    }
    if not parts:
        raise LookupError("the page has no components of the card's memory: see the server's log")
    found = [
        _off("the card's memory", sum(parts.values()), nvml.total, nvml.total, 0),
        _off("free memory", parts["free"], nvml.free, nvml.total),
    ]
    if "unattributed" in parts:
        share = abs(parts["unattributed"]) / nvml.total
        found.append(Figure("unattributed share of the card", share, "", TARGET))
        ours = sum(value for part, value in parts.items() if part in OF_THE_SERVER)
        if nvml.processes:
            ours += parts.get("other_processes", 0.0)
            named = "memory of processes"
            found.append(_off(named, ours, nvml.processes, nvml.total))
    else:  # as in a container with process ids of its own
        share = parts.get("unsplit", 0.0) / nvml.total
        found.append(Figure("share of the card whose holder the driver does not list", share, ""))
    return found


def beside_torch(page: str, torch: dict[str, float]) -> list[Figure]:
    """The worker's figures on the page, held to what torch says in the worker itself."""
    values = {name: value for name, _, value in samples(page)}
    return [
        _off(f"torch's {name} bytes", values[named], said, said)
        for name, said in torch.items()
        if (named := TORCH.format(name)) in values
    ]


def components(page: str) -> dict[str, float]:
    """All that the page says of device memory, by name and component."""
    return {
        " ".join((name, labels.get("component", ""))).strip(): value
        for name, labels, value in samples(page)
        if name.startswith(("kvscope_gpu_memory_", "kvscope_gpu_torch_", "kvscope_kv_pool"))
    }


def total(page: str, name: str) -> float:
    """Sum of a metric over its labels."""
    return sum(value for found, _, value in samples(page) if found == name)


def _off(name: str, ours: float, theirs: float, of: float, target: float = TARGET) -> Figure:
    share = abs(ours - theirs) / max(of, 1.0)
    return Figure(f"{name}, differs from the page's by", share, "of it", target)


def samples(page: str) -> list[tuple[str, dict[str, str], float]]:
    """Name, labels and value of each sample of a page."""
    return [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    ]
