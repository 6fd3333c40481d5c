"""The rule that sizes a pool: vLLM's on a GPU, a quarter of the free memory on a CPU."""

import math

CPU_MEMORY_SHARE = 0.25
"""Share of the memory free at start; the system, activations and other programs need the rest."""


def requested_bytes(total: int, utilization: float) -> int:
    """The engine's whole budget: a share of all memory, not of what the weights leave."""
    return math.ceil(total * utilization)


def kv_budget(requested: int, weights: int, activations: int, other: int) -> int:
    """What the budget leaves for K and V; negative where it does not even hold the rest."""
    return requested - weights - activations - other


def cpu_pool_blocks(free: int, bytes_per_block: int, useful: int) -> int:
    """A quarter of the free memory, at most the blocks that can be of use."""
    return min(int(free * CPU_MEMORY_SHARE) // bytes_per_block, useful)
