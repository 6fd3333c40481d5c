"""Partially filled last blocks that several forked sequences share: copied before a write.

Only such a block can be written while it is shared: all others with several owners are full. It is
the last one in the table of each of its owners, and the last remaining owner writes in place.
"""

from kvscope_engine.block_mover import BlockCopier
from kvscope_engine.block_pool import BlockPool
from kvscope_engine.request import Sequence
from kvscope_events.bus import Bus
from kvscope_events.events import BlockCopied


class SharedTails:
    """The shared last blocks of all sequences; nearly always empty, so check `blocks` first."""

    def __init__(self, pool: BlockPool, bus: Bus, copier: BlockCopier) -> None:
        self._pool = pool
        self._emit = bus.emit
        self._copier = copier
        self.blocks: set[int] = set()
        """Partially filled blocks with several owners; a fork adds its own."""

    def copy(self, sequence: Sequence) -> None:
        """Replace the sequence's last block, which is shared, by a copy.

        Raises OutOfBlocksError, without having changed anything.
        """
        number, table = sequence.sequence_id, sequence.block_table
        source = table[-1]
        (target,) = self._pool.allocate(number, 1, "cow")
        self._copier.copy(source, target)
        self._emit(BlockCopied(number, source, target))
        self._pool.release(number, [source], "cow")
        table[-1] = target
        self.lost_owner(source)

    def lost_owner(self, block: int) -> None:
        """One owner has released the block: a single remaining owner may write to it."""
        if not self._pool.is_shared(block):
            self.blocks.discard(block)
