"""The ports between block tables and KV tensors: whatever copies blocks is a `BlockMover`.

Called between steps on the engine's thread, in the order of the calls. A copy may still be under
way when the call returns; it reads what was there when it was called, and the next step waits for
it.
"""

from collections.abc import Sequence
from typing import Protocol


class BlockCopier(Protocol):
    """Copies whole blocks in every layer."""

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy blocks of the pool to other blocks of the pool; no target is a source."""
        ...


class BlockSwapper(Protocol):
    """Copies whole blocks in every layer to the host and back."""

    def swap_out(self, blocks: Sequence[int], host_blocks: Sequence[int]) -> None:
        """Copy blocks of the pool to blocks of the host's swap pool."""
        ...

    def swap_in(self, host_blocks: Sequence[int], blocks: Sequence[int]) -> None:
        """Copy blocks of the host's swap pool to blocks of the pool."""
        ...


class BlockMover(BlockCopier, BlockSwapper, Protocol):
    """Both."""
