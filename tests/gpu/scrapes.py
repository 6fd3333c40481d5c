"""Shared by the GPU's tests."""

import time

from kvscope_events.bus import Subscription
from kvscope_events.events import Batch, DeviceMemorySampled, EngineEvent
from kvscope_exporter.machine.gpu import Cadence, GpuSource
from kvscope_exporter.machine.host_memory import HostMemory
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.targets.exporter import in_process
from tests.exporter.page import hello
from tests.fakes.nvml import GIB
from tests.fakes.nvml.states import UUID

FAST = Cadence(
    memory=0.01,
    processes=0.02,
    sensors=0.02,
    first_retry=0.01,
    last_retry=0.05,
    stale_intervals=6000,
)
"""A hundred times faster than in earnest. Stale after a minute: the poller's thread may wait for
seconds on a busy machine."""
SERVER_PID = 4242
OWN_FAMILIES = {
    "kvscope_gpu_nvml_up",
    "kvscope_gpu_sample_age_seconds",
    "kvscope_gpu_sample_duration_seconds",
}
"""Families that stay while NVML is down, for a poller that ever had a sample."""
NO_HOST = HostMemory(resident=None, limit=None, usage=None, unreclaimable=None)


class Scrapes:
    """An exporter on a GPU source, fed by hand."""

    def __init__(self, gpu: GpuSource | None, server_pid: int = SERVER_PID) -> None:
        self._subscription = Subscription(1024)
        self._seq = 0
        machine = Machine(gpu=gpu, host=lambda pid: NO_HOST)
        self.exporter = in_process(self._subscription, machine=machine)
        self.tell(hello(pid=server_pid))

    def tell(self, *events: EngineEvent, age_seconds: float = 0.0) -> None:
        """A batch of the engine's."""
        time_ns = time.monotonic_ns() - round(age_seconds * 1e9)
        self._subscription.put(Batch(self._seq, time_ns, list(events), arrived_ns=time_ns))
        self._seq += 1

    def value(self, name: str, **labels: str) -> float | None:
        """The value of the one series with these labels; None without it."""
        found = self.series(name, **labels)
        assert len(found) <= 1, found
        return next(iter(found.values()), None)

    def series(self, name: str, **labels: str) -> dict[tuple[str, ...], float]:
        """By the values of the labels that were not asked for."""
        return {
            tuple(v for k, v in found.items() if k not in labels): value
            for found, value in self.page().get(name, [])
            if labels.items() <= found.items()
        }

    def page(self) -> dict[str, list[tuple[dict[str, str], float]]]:
        """Labels and values of one scrape, by sample name."""
        samples: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in self.exporter.registry.collect():
            for sample in family.samples:
                samples.setdefault(sample.name, []).append((sample.labels, sample.value))
        return samples

    def names(self, prefix: str) -> set[str]:
        """Names of the families that are there."""
        collected = self.exporter.registry.collect()
        return {family.name for family in collected if family.name.startswith(prefix)}

    def components(self, uuid: str = UUID.format(0)) -> dict[str, float]:
        """Components of the ledger, by name; empty without one."""
        name = "kvscope_gpu_memory_component_bytes"
        return {key[-1]: value for key, value in self.series(name, uuid=uuid).items()}


def torch_sample(**changes: object) -> DeviceMemorySampled:
    """A server of 16 GiB of weights and 8 GiB of KV pool on GPU 0, a step under way."""
    fields: dict[str, object] = {
        "pid": SERVER_PID,
        "device_uuid": UUID.format(0),
        "weights_bytes": 16 * GIB,
        "kv_pool_bytes": 8 * GIB,
        "allocated_bytes": 25 * GIB,
        "active_bytes": 25 * GIB + 4096,
        "reserved_bytes": 27 * GIB,
        "requested_bytes": 25 * GIB - 512,
        "inactive_split_bytes": GIB // 2,
        "allocated_peak_bytes": 26 * GIB,
        "reserved_peak_bytes": 28 * GIB,
        "alloc_retries": 0,
        "ooms": 0,
        "activation_peak_bytes": 2 * GIB,
    }
    return DeviceMemorySampled(**{**fields, **changes})  # type: ignore[arg-type]
