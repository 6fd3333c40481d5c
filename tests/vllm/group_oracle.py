"""A second reading of an observed stream, for pools of several groups: plain loops over its events.

It shares no code with the folds, and imports of ours nothing but the events. `Oracle.rows` has the
families of a page that it expects, by name and labels.
"""

from collections import Counter
from collections.abc import Iterable

from kvscope_events.events import (
    Batch,
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    CacheGroup,
    ContentDropped,
    PoolCreated,
    PoolSnapshot,
    PrefixLookup,
)

Row = tuple[str, tuple[tuple[str, str], ...]]
"""Name and labels, in alphabetical order."""
_SPARSEST_FIRST = ("state", "sliding_window", "full_attention")


class Oracle:
    """Every block's references and content, every name that was ever lost."""

    def __init__(self, batches: Iterable[Batch]) -> None:
        self.groups: list[CacheGroup] = []
        self.pool = (0, 0, 0)
        """Blocks, reserved ones, tokens that one name covers."""
        self.alignment = 0
        self.references: Counter[int] = Counter()
        self.names: dict[int, set[bytes]] = {}
        """By block: content by which it can be found."""
        self.holders: dict[bytes, set[int]] = {}
        """By name: blocks that can be found by it."""
        self.group: dict[int, int | None] = {}
        """By block."""
        self.lost: set[bytes] = set()
        """Names that were evicted at some time."""
        self.counted: Counter[Row] = Counter()
        self.lookups: list[PrefixLookup] = []
        self.alone: Counter[str] = Counter()
        """By kind, from the names that are there, without the producer's own word."""
        for batch in batches:
            for event in batch.events:
                self._read(event)

    def rows(self) -> dict[Row, float]:
        rows: dict[Row, float] = dict(self.counted)
        blocks, reserved, _ = self.pool
        active = {block for block, count in self.references.items() if count}
        cached = {block for block, names in self.names.items() if names} - active
        states = {"active": active, "cached": cached}
        for state, members in states.items():
            rows[_row("kvscope_kv_blocks", state=state)] = len(members)
            for kind in {group.kind for group in self.groups} if len(self.groups) > 1 else ():
                count = sum(self._kind(block) == kind for block in members)
                rows[_row("kvscope_kv_group_blocks", kind=kind, state=state)] = count
        free = blocks - reserved - len(active) - len(cached)
        return rows | {_row("kvscope_kv_blocks", state="free"): free}

    def _kind(self, block: int) -> str | None:
        group = self.group.get(block)
        return None if group is None else self.groups[group].kind

    def _count(self, amount: int, family: str, **labels: str) -> None:
        self.counted[_row(family, **labels)] += amount

    def _read(self, event: object) -> None:
        match event:
            case PoolCreated() | PoolSnapshot():
                self._pool(event)
            case BlocksAllocated():
                for block in event.blocks:
                    self.references[block] += 1
                    self.group[block] = event.group
            case BlocksShared():
                self.references.update(event.blocks)
            case BlocksCached():
                for block, name in zip(event.blocks, event.hashes, strict=True):
                    self.names.setdefault(block, set()).add(name)
                    self.holders.setdefault(name, set()).add(block)
                    self.group[block] = _group_of(name, self.groups)
            case BlocksEvicted():
                self._evicted(event)
            case ContentDropped():
                for block, name in zip(event.blocks, event.hashes, strict=True):
                    self._forget(block, name)
            case BlocksReleased():
                self.references.subtract([*event.cached, *event.free, *event.shared])
            case PrefixLookup():
                self._looked_up(event)

    def _pool(self, event: PoolCreated | PoolSnapshot) -> None:
        """Snapshots of a stream that was read from its beginning say nothing new."""
        self.groups = list(event.groups)
        self.pool = (event.num_blocks, event.reserved, event.block_size)
        self.alignment = event.alignment or 0

    def _evicted(self, event: BlocksEvicted) -> None:
        for block, name in zip(event.blocks, event.hashes, strict=True):
            self._forget(block, name)
            self.lost.add(name)
            self._count(1, "kvscope_kv_block_evictions_total", cause=event.cause)

    def _forget(self, block: int, name: bytes) -> None:
        self.names[block].discard(name)
        self.holders[name].discard(block)

    def _looked_up(self, event: PrefixLookup) -> None:
        _, _, name_tokens = self.pool
        phase = "resumed" if event.resumed else "first"
        hit = event.hit_blocks * name_tokens
        self._count(event.queried_tokens, "kvscope_prefix_cache_queried_tokens_total", phase=phase)
        self._count(hit, "kvscope_prefix_cache_hit_tokens_total", phase=phase)
        self.lookups.append(event)
        if event.resumed or len(self.groups) < 2:
            return
        had = [self._reach(index, event) for index in range(len(self.groups))]
        kinds = sorted({group.kind for group in self.groups}, key=_SPARSEST_FIRST.index)
        alone = {
            kind: min(had[i] for i, group in enumerate(self.groups) if group.kind == kind)
            for kind in kinds
        }
        for kind, tokens in alone.items():
            self._count(tokens, "kvscope_prefix_cache_group_hit_tokens_total", kind=kind)
        most = max(hit, *alone.values())
        refuses = min(kinds, key=alone.__getitem__)
        if most > hit:
            family = "kvscope_prefix_cache_vetoed_tokens_total"
            cause = self._why(refuses, had, most, event)
            self._count(most - hit, family, kind=refuses, cause=cause)

    def _reach(self, index: int, event: PrefixLookup) -> int:
        """Tokens that a group alone allows, by the names that it has now."""
        group = self.groups[index]
        _, _, name_tokens = self.pool
        step = group.block_size // name_tokens
        places = range(step - 1, len(event.hashes), step)
        there = [self._has(index, event.hashes[place]) for place in places]
        if group.kind == "full_attention":
            run = there.index(False) if False in there else len(there)
            return self._aligned(run * group.block_size)
        needed = 1 if group.window is None else -(-(group.window - 1) // group.block_size)
        for end in range(len(there), 0, -1):
            tokens = end * group.block_size
            if tokens == self._aligned(tokens) and all(there[max(0, end - needed) : end]):
                return tokens
        return 0

    def _aligned(self, tokens: int) -> int:
        return tokens // self.alignment * self.alignment if self.alignment else tokens

    def _has(self, index: int, name: bytes) -> bool:
        return bool(self.holders.get(_named(name, index)))

    def _why(self, kind: str, had: list[int], tokens: int, event: PrefixLookup) -> str:
        """The reason why groups of this kind do not reach so far."""
        _, _, name_tokens = self.pool
        lacking = set()
        for index, group in enumerate(self.groups):
            if group.kind != kind or had[index] >= tokens:
                continue
            end = tokens // group.block_size
            begin = had[index] // group.block_size
            if group.window is not None:
                begin = max(0, end - -(-(group.window - 1) // group.block_size))
            elif kind == "state":
                begin = max(0, end - 1)
            for block in range(begin, end):
                name = event.hashes[(block + 1) * group.block_size // name_tokens - 1]
                if not self._has(index, name):
                    lacking.add(_named(name, index))
        if not lacking:
            return "unaligned"
        return "evicted" if lacking & self.lost else "never_kept"


def _named(name: bytes, index: int) -> bytes:
    """The name of the same content in another group."""
    return name[:-4] + index.to_bytes(4, "big")


def _group_of(name: bytes, groups: list[CacheGroup]) -> int:
    return int.from_bytes(name[-4:], "big") if len(groups) > 1 else 0


def _row(family: str, **labels: str) -> Row:
    return family, tuple(sorted(labels.items()))
