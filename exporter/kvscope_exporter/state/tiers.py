"""Content of a cache's tiers by name, tokens found in each, and copies between them and the pool.

Streams of KV events name the content of every tier, the device's too; an engine that knows its own
pool's blocks names only that of the tiers below.

Blocks of one name are counted, not distinguished: each store adds one and each removal takes one. A
tier is known from the start, and again after it was cleared; a gap makes all of them unknown.
"""

import logging
from collections.abc import Mapping
from typing import get_args

from kvscope_events.events import (
    BlockHash,
    NamesCleared,
    NamesRemoved,
    NamesStored,
    PoolCounted,
    PoolCreated,
    PoolSnapshot,
    PrefixLookup,
    TierCreated,
    TierTransferred,
)
from kvscope_events.vocabulary import Tier, TransferDirection
from kvscope_exporter.state.call_fold import CallFold

logger = logging.getLogger(__name__)

MAX_DEVICE_NAMES = 1 << 22
"""Maximum number of names in the device's tier, as many as a pool may have blocks. They take 500
MB; those of a pool of 100,000 blocks 12 MB."""
MAX_NAMES = 1 << 20
"""The same for each other tier. Some announce only what they store, and so grow without limit."""
SPURIOUS_BLOCKS = 1024
"""Blocks that a tier may have beyond twice the most names that it ever had at once. Servers rarely
compute the same content twice; if there are more, announced stores cannot be real."""


class TierContent:
    """One tier. The sums continue while the content is not known."""

    def __init__(self, max_names: int) -> None:
        self.known = True
        self.num_blocks = 0
        """Sum over all names."""
        self.stored = 0
        self.removed = 0
        self.is_announced_again = False
        """Whether stores were announced that cannot all have happened; permanent."""
        self._max_names = max_names
        self._most_names = 0
        self._blocks: dict[BlockHash, int] = {}  # by name, never 0

    @property
    def blocks(self) -> Mapping[BlockHash, int]:
        """By name; a live view."""
        return self._blocks

    def store(self, names: list[BlockHash]) -> None:
        """Count one more block for each name."""
        self.stored += len(names)
        if not self.known:
            return
        blocks = self._blocks
        for name in names:
            blocks[name] = blocks.get(name, 0) + 1
        self.num_blocks += len(names)
        num_names = len(blocks)
        if num_names > self._most_names:
            self._most_names = num_names
            if num_names > self._max_names:
                self.on_gap()
        if self.num_blocks > 2 * self._most_names + SPURIOUS_BLOCKS:
            self.is_announced_again = True
            self.on_gap()

    def remove(self, names: list[BlockHash]) -> None:
        """Count one block less for each name that has any."""
        self.removed += len(names)
        if not self.known:
            return
        blocks = self._blocks
        for name in names:
            count = blocks.get(name)
            if count is None:
                self.num_blocks += 1  # given back below
            elif count == 1:
                del blocks[name]
            else:
                blocks[name] = count - 1
        self.num_blocks -= len(names)

    def clear(self) -> None:
        """All content is gone."""
        self._forget()
        self.known = not self.is_announced_again

    def on_gap(self) -> None:
        """Its content is no longer known."""
        self._forget()
        self.known = False

    def check(self) -> None:
        """Assert that blocks are the sum over names; O(names)."""
        assert self.num_blocks == sum(self._blocks.values())
        assert all(count > 0 for count in self._blocks.values())
        assert self.known or not self._blocks

    def _forget(self) -> None:
        self._blocks = {}
        self._most_names = self.num_blocks = 0


class Tiers(CallFold):
    """Each tier from its first event on: a server without it never names it."""

    name = "tiers"

    def __init__(self) -> None:
        super().__init__(
            {
                PoolCreated: self._sized,
                PoolSnapshot: self._sized,
                PoolCounted: self._sized,
            }
        )
        self.tiers: dict[Tier, TierContent] = {}
        """The tiers that occurred, and the device's, which every server has."""
        self.capacities: dict[Tier, TierCreated] = {}
        """Tiers whose size the engine has reported."""
        self.hit_tokens: dict[Tier, int] = {"device": 0}
        """Hits of first lookups only."""
        self.queried_tokens: dict[Tier, int] = {}
        """Those of first lookups that the pool did not have, for tiers in `capacities`."""
        self.copied: dict[tuple[Tier, TransferDirection], tuple[int, int]] = {}
        """Bytes and nanoseconds."""
        self._block_size = 0
        self._whole = True  # no gap since the first event
        self._of("device")

    def on_lost(self) -> None:
        self._whole = False
        for tier in self.tiers.values():
            tier.on_gap()

    def _of(self, name: Tier) -> TierContent:
        tier = self.tiers.get(name)
        if tier is None:
            assert name in get_args(Tier)
            tier = TierContent(MAX_DEVICE_NAMES if name == "device" else MAX_NAMES)
            tier.known = self._whole
            self.tiers[name] = tier
        return tier

    def on_names_stored(self, event: NamesStored) -> None:
        tier = self.tiers.get(event.tier) or self._of(event.tier)
        was_known = tier.known
        tier.store(event.names)
        if was_known and not tier.known:
            logger.warning(
                "tier %s is no longer tracked: %s",
                event.tier,
                "stores are announced that did not happen (kv_cache_report_mode: full?)"
                if tier.is_announced_again
                else "too many names",
            )

    def on_names_removed(self, event: NamesRemoved) -> None:
        tier = self.tiers.get(event.tier) or self._of(event.tier)
        tier.remove(event.names)

    def on_names_cleared(self, event: NamesCleared) -> None:
        self._of(event.tier).clear()

    def _sized(self, event: PoolCreated | PoolSnapshot | PoolCounted) -> None:
        self._block_size = event.block_size

    def on_tier_created(self, event: TierCreated) -> None:
        tier = self._of(event.tier)
        if event.empty:
            tier.known = True
        elif event.tier not in self.capacities:  # we joined late: it holds what we have not seen
            tier.on_gap()
        self.capacities[event.tier] = event
        self.hit_tokens.setdefault(event.tier, 0)
        self.queried_tokens.setdefault(event.tier, 0)
        for direction in get_args(TransferDirection):
            self.copied.setdefault((event.tier, direction), (0, 0))

    def on_prefix_lookup(self, event: PrefixLookup) -> None:
        source: Tier = event.loaded_from or "other"
        loaded = event.loaded_tokens
        if not event.resumed:
            found = event.hit_blocks * self._block_size
            self.hit_tokens["device"] += found
            for name in self.capacities:
                asked = max(0, event.queried_tokens - found)
                self.queried_tokens[name] = self.queried_tokens.get(name, 0) + asked
            if loaded:
                self.hit_tokens[source] = self.hit_tokens.get(source, 0) + loaded

    def on_tier_transferred(self, event: TierTransferred) -> None:
        total, took_ns = self.copied.get((event.tier, event.direction), (0, 0))
        kind = (event.tier, event.direction)
        self.copied[kind] = (total + event.bytes, took_ns + event.duration_ns)
