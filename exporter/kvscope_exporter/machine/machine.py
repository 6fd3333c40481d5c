"""Sources that a page reads from the machine, besides the engines' events: GPUs and host memory."""

from collections.abc import Callable
from dataclasses import dataclass, field

from kvscope_exporter.machine.gpu import GpuHistory, GpuPoller, GpuSource
from kvscope_exporter.machine.host_memory import (
    Available,
    HostMemory,
    available_memory,
    host_memory,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Sources that are read when a page is rendered."""

    gpu: GpuSource | None = None
    """None: GPUs are not watched, and their families are absent."""
    gpu_history: GpuHistory = field(default_factory=GpuHistory)
    """Earlier samples of the GPUs; empty if they are not watched."""
    only_reported: bool = False
    """Show only devices that the page's engines report, since other servers share the machine."""
    host: Callable[[int], HostMemory] = host_memory
    """Returns the memory of the process with that pid, and of its control group."""
    available: Callable[[], Available | None] = available_memory
    """Returns the memory of this machine."""


def polled(poller: GpuPoller | None, *, only_reported: bool = False) -> Machine:
    """This machine, with the GPUs of a poller; None: GPUs are not watched."""
    if poller is None:
        return Machine(only_reported=only_reported)
    return Machine(gpu=poller, gpu_history=poller.history, only_reported=only_reported)
