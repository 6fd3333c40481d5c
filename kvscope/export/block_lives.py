"""Lives of an engine's blocks, each from its allocation until the block is free again.

Only of pools whose blocks have numbers, and only from the first whole state on. At most as many are
followed as the pool has blocks.
"""

from collections.abc import Callable

from kvscope.export.course import Span
from kvscope.export.rows import BlockLife
from kvscope_events.events import (
    Batch,
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    ContentDropped,
    PoolCreated,
    PoolSnapshot,
)
from kvscope_exporter.state.fold import Fold


class BlockLives(Fold):
    """A row for each life, when it ends or is no longer followed."""

    name = "block_lives"

    def __init__(self, engine: str, give: Callable[[BlockLife], None]) -> None:
        super().__init__()
        self._engine = engine
        self._give = give
        self._span = Span(0, 0)
        self._num_blocks = 0
        """0: unknown."""
        self._lives: dict[int, BlockLife] = {}
        self._idle: set[int] = set()
        """Blocks that are cached and that nothing references."""

    def follow(self, batch: Batch, span: Span) -> None:
        """Apply a batch of this time."""
        self._span = span
        self.on_batch(batch)

    def cut(self) -> None:
        """The ends of those in progress are unknown, and so is the state of every block."""
        for life in self._lives.values():
            self._give(life)
        self._lives.clear()
        self._idle.clear()
        self._num_blocks = 0

    def on_pool_created(self, event: PoolCreated) -> None:
        self.cut()
        self._num_blocks = event.num_blocks

    def on_pool_snapshot(self, event: PoolSnapshot) -> None:
        """Blocks that hold something had been allocated before."""
        if self._num_blocks != event.num_blocks:
            self.cut()
        self._num_blocks = event.num_blocks
        for block, (references, name) in enumerate(
            zip(event.ref_counts, event.hashes, strict=False)
        ):
            if (references or name is not None) and block not in self._lives:
                self._begin(block).name = None if name is None else name.hex()
        self._idle = {block for block in event.lru if block in self._lives}

    def on_blocks_allocated(self, event: BlocksAllocated) -> None:
        at = self._span.begin_ns // 1000
        for block in event.blocks:
            if 0 <= block < self._num_blocks:
                life = self._begin(block)
                life.allocated_at, life.sequence = at, event.sequence
                life.cause, life.layer_group = event.cause, event.group

    def on_blocks_shared(self, event: BlocksShared) -> None:
        self._idle.difference_update(event.blocks)
        if event.cause != "prefix_hit":
            return
        at = self._span.begin_ns // 1000
        for block in event.blocks:
            life = self._lives.get(block)
            if life is not None:
                life.hits += 1
                life.last_hit_at = at

    def on_blocks_cached(self, event: BlocksCached) -> None:
        at = self._span.end_ns // 1000
        for block, name in zip(event.blocks, event.hashes, strict=False):
            life = self._lives.get(block)
            if life is not None:
                life.cached_at, life.name = at, name.hex()

    def on_blocks_released(self, event: BlocksReleased) -> None:
        self._idle.update(block for block in event.cached if block in self._lives)
        for block in event.free:
            self._end(block, "released")

    def on_blocks_evicted(self, event: BlocksEvicted) -> None:
        for block in event.blocks:
            self._end(block, event.cause)

    def on_content_dropped(self, event: ContentDropped) -> None:
        for block in event.blocks:
            life = self._lives.get(block)
            if life is not None and block in self._idle:
                self._end(block, event.cause)
            elif life is not None:
                life.cached_at = life.name = None

    def _begin(self, block: int) -> BlockLife:
        known = self._lives.get(block)
        if known is not None:  # its end was not reported
            self._give(known)
        self._idle.discard(block)
        life = self._lives[block] = BlockLife(engine=self._engine, block=block)
        return life

    def _end(self, block: int, by: str) -> None:
        self._idle.discard(block)
        life = self._lives.pop(block, None)
        if life is not None:
            life.ended_at, life.ended_by = self._span.begin_ns // 1000, by
            self._give(life)
