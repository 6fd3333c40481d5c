"""A pool of any size under requests whose prompts share prefixes, as plain as can be."""

from collections.abc import Callable
from dataclasses import dataclass, field

from kvscope_events.events import (
    BlockCopied,
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    EngineEvent,
    PoolCreated,
    PoolSnapshot,
    PrefixCacheReset,
    PrefixLookup,
)
from kvscope_events.vocabulary import AllocationCause, EvictionCause, ReleaseCause
from tests.exporter.stream import block_hash

BLOCK_SIZE = 4


def tree_path(choices: list[int]) -> list[bytes]:
    """Names of whole prefixes: equal names mean equal choices from the start."""
    path, node = [], 1
    for choice in choices:
        node = 4 * node + choice
        path.append(block_hash(node))
    return path


@dataclass
class _Running:
    blocks: list[int]
    uncached: list[int]
    names: list[bytes]


@dataclass
class TreePool:
    """Evicts the block that was released first; the tail of a sequence is released first."""

    usable: int
    tell: Callable[[EngineEvent], None] = lambda _: None
    names: dict[int, bytes] = field(default_factory=dict)
    references: dict[int, int] = field(default_factory=dict)
    lru: list[int] = field(default_factory=list)
    running: dict[int, _Running] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tell(PoolCreated(self.usable + 1, BLOCK_SIZE, 0, 1))

    def find(self, name: bytes) -> int | None:
        """The oldest copy."""
        return next((block for block, held in self.names.items() if held == name), None)

    def has_room(self, path: list[bytes], unnamed: int) -> bool:
        """Whether a request can be admitted."""
        found = self.leading(path)
        idle = [block for block in found if block in self.lru]
        wanted = len(path) - len(found) + unnamed
        return wanted <= self.usable - len(self.references) - len(idle)

    def leading(self, path: list[bytes]) -> list[int]:
        """The blocks that a request for this path finds."""
        blocks = []
        for name in path:
            block = self.find(name)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def start(
        self,
        sequence: int,
        path: list[bytes],
        unnamed: int = 0,
        *,
        at_once: bool = True,
        resumed: bool = False,
        loaded_tokens: int = 0,
    ) -> int:
        """Admit a request; returns its hits. at_once: what it computes can be found at once."""
        found = self.leading(path)
        tokens = BLOCK_SIZE * len(path) + 1
        self.tell(PrefixLookup(sequence, tokens, path, len(found), resumed, loaded_tokens))
        for block in found:
            self.references[block] = self.references.get(block, 0) + 1
            if block in self.lru:
                self.lru.remove(block)
        if found:
            self.tell(BlocksShared(sequence, found, "prefix_hit"))
        fresh = self._allocate(sequence, len(path) - len(found) + unnamed)
        names = path[len(found) :]
        self.running[sequence] = _Running([*found, *fresh], fresh[: len(names)], names)
        if at_once:
            self.compute(sequence)
        return len(found)

    def compute(self, sequence: int) -> None:
        """The request's computed blocks can be found from now on."""
        running = self.running[sequence]
        if running.names:
            self.names.update(zip(running.uncached, running.names, strict=True))
            self.tell(BlocksCached(sequence, running.uncached, running.names, None))
        running.uncached, running.names = [], []

    def fork(self, parent: int, child: int) -> None:
        """A sample of the same prompt shares all blocks."""
        blocks = self.running[parent].blocks
        for block in blocks:
            self.references[block] += 1
        self.tell(BlocksShared(child, blocks.copy(), "fork"))
        self.running[child] = _Running(blocks.copy(), [], [])

    def is_shared(self, block: int) -> bool:
        return self.references[block] > 1

    def copy_last(self, sequence: int) -> None:
        """Write to the last block, which others share: to a copy of it."""
        blocks = self.running[sequence].blocks
        source = blocks[-1]
        (blocks[-1],) = self._allocate(sequence, 1, "cow")
        self.tell(BlockCopied(sequence, source, blocks[-1]))
        self.references[source] -= 1
        self.tell(BlocksReleased(sequence, [], [], [source], "cow"))

    def end(self, sequence: int, cause: ReleaseCause = "finished") -> None:
        cached, free, shared = [], [], []
        for block in reversed(self.running.pop(sequence).blocks):
            self.references[block] -= 1
            if self.references[block]:
                shared.append(block)
                continue
            del self.references[block]
            (cached if block in self.names else free).append(block)
        self.lru += cached
        self.tell(BlocksReleased(sequence, cached, free, shared, cause))

    def reset(self) -> None:
        count = len(self.lru)
        self._evict(self.lru, "reset")
        self.tell(PrefixCacheReset(count))

    def order_out(self, name: bytes) -> None:
        """Drop this content and everything that continues it, if unused."""
        doomed = [block for block, held in self.names.items() if _goes_on(held, name)]
        if doomed and not any(block in self.references for block in doomed):
            self._evict(doomed, "ordered")

    def snapshot(self) -> PoolSnapshot:
        blocks = range(self.usable + 1)
        return PoolSnapshot(
            *(self.usable + 1, BLOCK_SIZE, 0, 1),
            [self.references.get(block, 0) for block in blocks],
            [self.names.get(block) for block in blocks],
            self.lru.copy(),
        )

    def _allocate(self, sequence: int, count: int, cause: AllocationCause = "prefill") -> list[int]:
        taken = {*self.references, *self.lru}
        free = [block for block in range(1, self.usable + 1) if block not in taken]
        missing = count - len(free)
        if missing > 0:
            assert missing <= len(self.lru), "the test gave it too much"
            free += self._evict(self.lru[:missing], "capacity")
        blocks = free[:count]
        self.references.update(dict.fromkeys(blocks, 1))
        self.tell(BlocksAllocated(sequence, blocks, cause))
        return blocks

    def _evict(self, blocks: list[int], cause: EvictionCause) -> list[int]:
        self.lru = [block for block in self.lru if block not in blocks]
        names = [self.names.pop(block) for block in blocks]
        if names:
            self.tell(BlocksEvicted(blocks, names, cause))
        return blocks


def _goes_on(name: bytes, ancestor: bytes) -> bool:
    node, root = int.from_bytes(name, "big"), int.from_bytes(ancestor, "big")
    while node > root:
        node //= 4
    return node == root
