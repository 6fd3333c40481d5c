"""Where the engine runs: its process, the GPUs, the host."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from exporter.gpu import GpuSource
from exporter.host_memory import HostMemory, host_memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What is read of it when a page is rendered."""

    gpu: GpuSource | None = None
    """None: nobody asked for GPUs, and their families are absent."""
    server_pid: int = field(default_factory=os.getpid)
    """Of the engine; an engine that reports its device memory says it itself."""
    host: Callable[[int], HostMemory] = host_memory
    """Of a pid."""
