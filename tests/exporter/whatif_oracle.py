"""The distances of looked-up blocks by the definition, from plain lists of a pool's events."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kvscope_events.events import (
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    ContentDropped,
    EngineEvent,
    PoolCreated,
    PoolSnapshot,
    PrefixCacheReset,
    PrefixLookup,
)
from kvscope_exporter.state import Cache
from kvscope_exporter.state.cache.curve import Curve

BLOCK_SIZE = 4

Entry = bytes | None
"""A name in the stack, or None for a block in the way that cannot be found."""


@dataclass
class Oracle:
    """Applies events one by one; a block is referenced if it is in `references`."""

    names: dict[int, bytes] = field(default_factory=dict)
    references: dict[int, int] = field(default_factory=dict)
    stack: list[Entry] = field(default_factory=list)
    """Newest first, evicted names as well."""
    vacant: int = 0
    """Blocks given back empty, or evicted, that are not in use again."""
    computing: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Names that were in the stack and not found: their distance and the sequence."""
    lookups: list[tuple[PrefixLookup, list[int]]] = field(default_factory=list)
    """The distances of the leading blocks that are known; 0: referenced."""
    seen: set[bytes] = field(default_factory=set)
    seen_blocks: int = 0
    seen_loaded: int = 0
    """Those of them that came from elsewhere."""

    def apply(self, event: EngineEvent) -> None:
        if isinstance(event, PoolCreated):
            self.names, self.references, self.stack, self.computing = {}, {}, [], {}
            self.vacant = 0
        elif isinstance(event, PoolSnapshot):
            self.replace(event)
        elif isinstance(event, PrefixLookup):
            self.look_up(event)
        elif isinstance(event, BlocksAllocated):
            self.references.update(dict.fromkeys(event.blocks, 1))
            self.vacant = max(0, self.vacant - len(event.blocks))
        elif isinstance(event, BlocksShared):
            for block in event.blocks:
                self.references[block] = self.references.get(block, 0) + 1
                self.leave([self.names[block]])
        elif isinstance(event, BlocksCached):
            self.names.update(zip(event.blocks, event.hashes, strict=True))
            self.leave(event.hashes)
            self.seen |= set(event.hashes)
            for name in event.hashes:
                self.computing.pop(name, None)
        elif isinstance(event, BlocksReleased):
            self.release(event)
        elif isinstance(event, BlocksEvicted | ContentDropped):
            for block, name in zip(event.blocks, event.hashes, strict=True):
                del self.names[block]
                self.vacant += block not in self.references
                if event.cause != "capacity" and name not in self.names.values():
                    self.leave([name])
        elif isinstance(event, PrefixCacheReset):
            self.stack, self.vacant = [], 0

    def replace(self, event: PoolSnapshot) -> None:
        self.names = {block: name for block, name in enumerate(event.hashes) if name is not None}
        self.references = {b: count for b, count in enumerate(event.ref_counts) if count}
        self.stack, self.computing, self.vacant = [], {}, 0
        self.seen |= set(self.names.values())
        for block in event.lru:
            if not self.is_referenced(self.names[block]):
                self.leave([self.names[block]])
                self.stack.insert(0, self.names[block])

    def look_up(self, event: PrefixLookup) -> None:
        self.computing = {n: c for n, c in self.computing.items() if c[1] != event.sequence}
        distances: list[int] = []
        new = []
        for index, name in enumerate(event.hashes):
            if name in self.names.values() and name not in self.stack and not any(distances):
                distances.append(0)
            elif name in self.computing and not new:
                distances.append(self.computing[name][0])
            elif name in self.stack:
                above = self.stack.index(name)
                distances.append(len(self.references) + self.vacant + above + 1)
                new.append(index)
            else:
                break
        for index in new:
            if index >= event.hit_blocks:
                self.computing[event.hashes[index]] = (distances[index], event.sequence)
        self.leave([event.hashes[index] for index in new])
        self.lookups.append((event, distances))
        if not event.resumed:
            unknown = (i for i, name in enumerate(event.hashes) if name not in self.seen)
            seen = next(unknown, len(event.hashes))
            self.seen_blocks += seen
            self.seen_loaded += sum(self.is_loaded(event, index) for index in range(seen))

    def release(self, event: BlocksReleased) -> None:
        for block in (*event.cached, *event.free):
            del self.references[block]
        for block in event.shared:
            self.references[block] -= 1
        self.vacant += len(event.free)
        path = [self.names[block] for block in reversed(event.cached)]
        idle = [name for name in path if not self.is_referenced(name)]
        self.leave(idle)
        self.stack[:0] = [*idle, *[None] * (len(path) - len(idle))]
        if event.cause in ("finished", "aborted", "preempted"):
            self.computing = {n: c for n, c in self.computing.items() if c[1] != event.sequence}

    def is_referenced(self, name: bytes) -> bool:
        return any(self.names.get(block) == name for block in self.references)

    def leave(self, names: Sequence[bytes]) -> None:
        self.stack = [name for name in self.stack if name not in names]

    def hits_at(self, capacity: int) -> int:
        """Hits of first lookups."""
        return sum(
            sum(1 for distance in distances if distance <= capacity)
            for event, distances in self.lookups
            if not event.resumed
        )

    def loaded_at(self, capacity: int) -> int:
        """Those of them behind the hits that came from elsewhere."""
        return sum(
            1
            for event, distances in self.lookups
            if not event.resumed
            for index, distance in enumerate(distances)
            if distance <= capacity and self.is_loaded(event, index)
        )

    @staticmethod
    def is_loaded(event: PrefixLookup, index: int) -> bool:
        return 0 <= BLOCK_SIZE * (index - event.hit_blocks) < event.loaded_tokens

    def error_at(self, capacity: int) -> int:
        return sum(
            abs(sum(1 for distance in distances if distance <= capacity) - event.hit_blocks)
            for event, distances in self.lookups
            if not event.resumed
        )


def since_start(cache: Cache) -> Curve:
    curve = cache.whatif.curve(None)
    assert curve is not None
    return curve
