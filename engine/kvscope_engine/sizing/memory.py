"""Memory for a pool: the source of its figures, and the rule that sizes the pool."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

CPU_MEMORY_SHARE = 0.25
"""Share of the memory free at start; the system, activations and other programs need the rest."""


def requested_bytes(total: int, utilization: float) -> int:
    """The engine's whole budget: a share of all memory, not of the rest after the weights."""
    return math.ceil(total * utilization)


def kv_budget(requested: int, weights: int, activations: int, other: int) -> int:
    """Bytes of the budget left for K and V; negative if it does not even hold the rest."""
    return requested - weights - activations - other


def cpu_pool_blocks(free: int, bytes_per_block: int, useful: int) -> int:
    """A quarter of the free memory, but at most the useful number of blocks."""
    return min(int(free * CPU_MEMORY_SHARE) // bytes_per_block, useful)


class PoolSizeError(Exception):
    """The pool cannot be built, or could not hold one sequence; the text has the numbers."""


class MeasuredDevice(Protocol):
    """A device whose memory can be measured. Bytes."""

    def total(self) -> int:
        """The whole memory, as the device's runtime reports it."""
        ...

    def free(self) -> int:
        """Memory held by no process, context or allocator cache."""
        ...

    def allocated(self) -> int:
        """Tensors of this process that are alive."""
        ...

    def peak(self) -> int:
        """The most that was allocated since `reset_peak`."""
        ...

    def reset_peak(self) -> None: ...

    def trim(self) -> None:
        """Release memory that the allocator keeps of dead tensors."""
        ...


@dataclass(frozen=True, slots=True)
class MainMemory:
    """The machine's own memory, as its kernel reports it."""

    meminfo: Path = Path("/proc/meminfo")

    def total(self) -> int:
        return self._field("MemTotal")

    def free(self) -> int:
        """Memory that the kernel can provide without swapping."""
        return self._field("MemAvailable")

    def _field(self, name: str) -> int:
        for line in self.meminfo.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise PoolSizeError(f"{self.meminfo} names no {name}: set --kv-cache-memory-bytes")
