"""Sources that a page reads from the machine, besides the engines' events: GPUs and host memory."""

from collections.abc import Callable
from dataclasses import dataclass

from exporter.machine.gpu import GpuSource
from exporter.machine.host_memory import Available, HostMemory, available_memory, host_memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Sources that are read when a page is rendered."""

    gpu: GpuSource | None = None
    """None: GPUs are not watched, and their families are absent."""
    only_reported: bool = False
    """Show only devices that the page's engines report, since other servers share the machine."""
    host: Callable[[int], HostMemory] = host_memory
    """Returns the memory of the process with that pid, and of its control group."""
    available: Callable[[], Available | None] = available_memory
    """Returns the memory of this machine."""
