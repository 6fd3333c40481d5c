"""The source of memory figures: a port, so that a simulated device can stand in for CUDA."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from engine.sizing.errors import PoolSizeError


class MeasuredDevice(Protocol):
    """A device whose memory can be measured. Bytes."""

    def total(self) -> int:
        """The whole memory, as the device's runtime reports it."""
        ...

    def free(self) -> int:
        """Memory that no process, context or allocator's cache holds."""
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
class MainMemory:
    """The machine's own memory, as its kernel reports it."""

    meminfo: Path = Path("/proc/meminfo")

    def total(self) -> int:
        return self._field("MemTotal")

    def free(self) -> int:
        """Memory that the kernel can give without swapping."""
        return self._field("MemAvailable")

    def _field(self, name: str) -> int:
        for line in self.meminfo.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise PoolSizeError(f"{self.meminfo} names no {name}: set --kv-cache-memory-bytes")
