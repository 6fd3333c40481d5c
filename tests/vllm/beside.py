"""Answers of vLLM itself about its groups, beside the observer: hits by group, and the blocks.

Runs in the Python of a vLLM. The expected figures share no code with the observer or the folds.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kvscope_events.events import Batch, BlocksAllocated, CacheGroup, PoolSnapshot, PrefixLookup
from kvscope_exporter.state import Cache, Groups

MAX_EXAMPLES = 5


class Beside:
    """Asks vLLM's own look-up by group at every admission that succeeds."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager
        self.asked: list[tuple[int, int, list[int]]] = []
        """Tokens asked for, tokens found, and what each group alone had, by admission."""
        self.lookups: list[PrefixLookup] = []
        self.groups, self.cache = Groups(), Cache()
        self.kinds: list[CacheGroup] = []
        self.compared = 0
        self.examples: list[str] = []
        self._by_block: dict[int, int | None] = {}
        self._read = 0
        self._allocate = manager.allocate_slots
        manager.allocate_slots = self._allocate_slots

    @classmethod
    def of(cls, manager: Any) -> Beside | None:
        """None for a pool of one group, and for a vLLM that cannot be asked."""
        asks = hasattr(manager.coordinator, "find_longest_cache_hit_per_group")
        return cls(manager) if asks else None

    def _allocate_slots(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        coordinator, alone = self.manager.coordinator, None
        waits = request.status.name != "RUNNING" and not request.num_computed_tokens
        if waits and self.manager.enable_caching and not request.skip_reading_prefix_cache:
            _, alone = coordinator.find_longest_cache_hit_per_group(
                request.block_hashes, request.num_tokens - 1
            )
        result = self._allocate(request, *args, **kwargs)
        if result is not None and alone is not None:
            local = args[1] if len(args) > 1 else kwargs.get("num_new_computed_tokens", 0)
            self.asked.append((request.num_tokens, local, list(alone)))
        return result

    def compare(self, batches: list[Batch]) -> None:
        """The folds after these batches, of which some were seen before, with vLLM's own lists."""
        for batch in batches[self._read :]:
            for fold in (self.groups, self.cache):
                fold.on_batch(batch)
            for event in batch.events:
                self._note(event)
        self._read = len(batches)
        if not self.groups.known:
            return
        self.compared += 1
        self.groups.check()
        self._equal("active", self._held(), self._of_fold("active"))
        self._equal("cached", self._cached(), self._of_fold("cached"))
        for block, group in self._holders().items():
            if self._by_block.get(block) != group:
                self._example(f"block {block} of group {group}: {self._by_block.get(block)}")

    def found(self) -> dict[str, Any]:
        told = [
            (one.queried_tokens, one.hit_blocks * self.cache.block_size, one.group_hit_tokens)
            for one in self.lookups
        ]
        firsts = [one for one, e in zip(self.asked, self.lookups, strict=False) if not e.resumed]
        kinds = [group.kind for group in self.kinds]
        alone: Counter[str] = Counter()
        for _, _, tokens in firsts:
            for kind in set(kinds):
                pairs = zip(tokens, kinds, strict=True)
                alone[kind] += min(had for had, of in pairs if of == kind)
        return {
            "compared": self.compared,
            "examples": self.examples,
            "lookups": len(told),
            "lookups_equal": told == self.asked,
            "alone": dict(alone),
            "alone_by_fold": self.cache.vetoes.hit_tokens,
            "vetoed": sum(max(tokens) - hit for _, hit, tokens in firsts),
            "vetoed_by_fold": _flat(self.cache.vetoes.vetoed_tokens),
        }

    def _note(self, event: Any) -> None:
        if isinstance(event, PrefixLookup):
            self.lookups.append(event)
        elif isinstance(event, BlocksAllocated):
            self._by_block |= dict.fromkeys(event.blocks, event.group)
        elif isinstance(event, PoolSnapshot):
            self.kinds = event.groups
            for block, group in enumerate(event.block_groups):
                if self._by_block.get(block, group) != group and event.ref_counts[block]:
                    self._example(f"snapshot: block {block} of group {group}")

    def _holders(self) -> dict[int, int]:
        """Group by block, of blocks that some request has now."""
        groups: dict[int, int] = {}
        for group, one in enumerate(self.manager.coordinator.single_type_managers):
            for blocks in one.req_to_blocks.values():
                groups |= {block.block_id: group for block in blocks if not block.is_null}
        return groups

    def _held(self) -> Counter[str]:
        """Referenced blocks by kind; a copy that no request has is in the group reported for it."""
        holders, kinds = self._holders(), Counter[str]()
        for block in self.manager.block_pool.blocks:
            if block.ref_cnt and not block.is_null:
                group = holders.get(block.block_id, self._by_block.get(block.block_id))
                if group is not None:
                    kinds[self.kinds[group].kind] += 1
        return kinds

    def _cached(self) -> Counter[str]:
        """Blocks by kind that no request has and that can be found."""
        return Counter(
            self.kinds[int.from_bytes(block.block_hash[-4:], "big")].kind
            for block in self.manager.block_pool.blocks
            if block.block_hash is not None and not block.ref_cnt and not block.is_null
        )

    def _of_fold(self, state: str) -> Counter[str]:
        blocks = self.groups.blocks.items()
        return Counter({kind: count for (kind, at), count in blocks if at == state})

    def _equal(self, what: str, theirs: Counter[str], ours: Counter[str]) -> None:
        if +theirs != +ours:
            self._example(f"{what}: vLLM {dict(theirs)}, fold {dict(ours)}")

    def _example(self, text: str) -> None:
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(text)


def _flat(table: dict[tuple[str, ...], int]) -> dict[str, int]:
    return {" ".join(key): value for key, value in table.items()}
