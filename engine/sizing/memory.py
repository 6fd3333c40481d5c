"""Where memory figures come from: a port, so that a simulated device can stand in for CUDA."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from engine.sizing.errors import PoolSizeError


class DeviceMemory(Protocol):
    """A device whose memory can be measured. Bytes."""

    def total(self) -> int:
        """All of it, as the device's own runtime sees it."""
        ...

    def free(self) -> int:
        """What nobody has taken: no other process, no context, no allocator's cache."""
        ...

    def allocated(self) -> int:
        """Tensors of this process that are alive."""
        ...

    def peak(self) -> int:
        """The most that was allocated since `reset_peak`."""
        ...

    def reset_peak(self) -> None: ...

    def trim(self) -> None:
        """Give back what the allocator keeps of dead tensors."""
        ...


@dataclass(frozen=True, slots=True)
class HostMemory:
    """The machine's own, as its kernel tells it."""

    meminfo: Path = Path("/proc/meminfo")

    def total(self) -> int:
        return self._field("MemTotal")

    def free(self) -> int:
        """What the kernel says can be taken without swapping."""
        return self._field("MemAvailable")

    def _field(self, name: str) -> int:
        for line in self.meminfo.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise PoolSizeError(f"{self.meminfo} names no {name}: set --kv-cache-memory-bytes")
