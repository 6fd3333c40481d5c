"""Blocks of a pool by the kind of their group: how many are active and cached.

Only of pools with several groups; in any other this fold does nothing.
"""

from kvscope_events.events import (
    BlocksAllocated,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    ContentDropped,
    PoolCreated,
    PoolSnapshot,
)
from kvscope_events.names import group_of
from kvscope_events.vocabulary import GroupKind
from kvscope_exporter.state.fold import Fold

_FREE, _ACTIVE, _CACHED = range(3)
_NO_GROUP = 255


class Groups(Fold):
    """Lost batches make the counts unknown until a snapshot."""

    name = "groups"

    def __init__(self) -> None:
        super().__init__(
            {
                PoolCreated: self._begin,
                PoolSnapshot: self._begin,
            }
        )
        self.known = False
        self.kinds: list[GroupKind] = []
        """Kind of each group; empty: the pool has only one."""
        self._states = bytearray()  # by block
        self._groups = bytearray()  # by block; _NO_GROUP: not known
        self._active: list[int] = []  # by group
        self._cached: list[int] = []

    @property
    def blocks(self) -> dict[tuple[str, ...], int]:
        """Active and cached blocks by kind; blocks whose group is not known are left out."""
        counts: dict[tuple[str, ...], int] = {}
        for kind, active, cached in zip(self.kinds, self._active, self._cached, strict=True):
            counts[kind, "active"] = counts.get((kind, "active"), 0) + active
            counts[kind, "cached"] = counts.get((kind, "cached"), 0) + cached
        return counts

    def on_gap(self) -> None:
        self.known = False

    def check(self) -> None:
        """Assert that the counts are those of the blocks; O(num_blocks)."""
        if not self.known:
            return
        for group in range(len(self.kinds)):
            held = [s for s, g in zip(self._states, self._groups, strict=True) if g == group]
            assert self._active[group] == held.count(_ACTIVE)
            assert self._cached[group] == held.count(_CACHED)

    def _begin(self, event: PoolCreated | PoolSnapshot) -> None:
        self.kinds = [group.kind for group in event.groups] if len(event.groups) > 1 else []
        self.known = bool(self.kinds)
        count = event.num_blocks if self.known else 0
        self._states = bytearray(count)
        self._groups = bytearray([_NO_GROUP]) * count
        self._active = [0] * len(self.kinds)
        self._cached = [0] * len(self.kinds)
        if self.known and isinstance(event, PoolSnapshot):
            self._resume(event)

    def _resume(self, event: PoolSnapshot) -> None:
        for block, (references, name) in enumerate(
            zip(event.ref_counts, event.hashes, strict=True)
        ):
            if name is not None:
                self._groups[block] = self._known_group(group_of(name))
            elif event.block_groups:
                self._groups[block] = self._known_group(event.block_groups[block])
            if references:
                self._become(block, _ACTIVE)
        for block in event.lru:
            self._become(block, _CACHED)

    def _known_group(self, group: int | None) -> int:
        return group if group is not None and group < len(self.kinds) else _NO_GROUP

    def _become(self, block: int, state: int) -> None:
        """A block that is not of this pool is skipped: the ledger shows such events."""
        if not 0 <= block < len(self._states):
            return
        before, self._states[block] = self._states[block], state
        group = self._groups[block]
        if group == _NO_GROUP:
            return
        if before:
            (self._active if before == _ACTIVE else self._cached)[group] -= 1
        if state:
            (self._active if state == _ACTIVE else self._cached)[group] += 1

    def on_blocks_allocated(self, event: BlocksAllocated) -> None:
        if not self.known:
            return
        group = self._known_group(event.group)
        for block in event.blocks:
            self._become(block, _FREE)
            if 0 <= block < len(self._groups):
                self._groups[block] = group
            self._become(block, _ACTIVE)

    def on_blocks_shared(self, event: BlocksShared) -> None:
        if self.known:
            for block in event.blocks:
                self._become(block, _ACTIVE)

    def on_blocks_released(self, event: BlocksReleased) -> None:
        if self.known:
            for block in event.cached:
                self._become(block, _CACHED)
            for block in event.free:
                self._become(block, _FREE)

    def on_blocks_evicted(self, event: BlocksEvicted) -> None:
        if self.known:
            for block in event.blocks:
                self._become(block, _FREE)

    def on_content_dropped(self, event: ContentDropped) -> None:
        """A block that no sequence references holds nothing any more; others stay active."""
        if self.known:
            for block in event.blocks:
                if 0 <= block < len(self._states) and self._states[block] == _CACHED:
                    self._become(block, _FREE)
