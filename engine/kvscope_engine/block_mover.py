"""The ports between block tables and KV tensors: copying blocks within the pool, and out of it."""

from collections.abc import Sequence
from typing import Protocol


class BlockCopier(Protocol):
    """Copies whole blocks in every layer; on CUDA in the stream of the steps, so they wait."""

    def copy(self, source: int, target: int) -> None:
        """Copy a block of the pool to another."""
        ...


class HostMover(Protocol):
    """Copies whole blocks in every layer between the pool and the host's swap pool.

    Called between steps on the engine's thread. A copy is complete when the call returns: the next
    step needs it, and so the call takes as long as the copy.
    """

    def swap_out(self, blocks: Sequence[int], host_blocks: Sequence[int]) -> None:
        """Copy blocks of the pool to as many blocks of the swap pool."""
        ...

    def swap_in(self, host_blocks: Sequence[int], blocks: Sequence[int]) -> None:
        """Copy blocks of the swap pool to as many blocks of the pool."""
        ...
