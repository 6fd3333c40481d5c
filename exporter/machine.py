"""What a page reads of the machine beside the engines' events: GPUs and the hosts' memory."""

from collections.abc import Callable
from dataclasses import dataclass

from exporter.gpu import GpuSource
from exporter.host_memory import HostMemory, host_memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Read when a page is rendered."""

    gpu: GpuSource | None = None
    """None: GPUs are not watched, and their families are absent."""
    only_reported: bool = False
    """Show only the devices that the page's engines report: other servers share the machine."""
    host: Callable[[int], HostMemory] = host_memory
    """Memory of the process with a pid, and of its control group."""
