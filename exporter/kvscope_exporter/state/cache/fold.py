"""The fold of the prefix cache; it keeps the resident and the evicted names once for all questions.

A question is a component with its own state, called with the event and the names that it needs,
before or after they change; it keeps no names of its own.
"""

from kvscope_events.events import (
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    ContentDropped,
    Hello,
    PoolCreated,
    PoolSnapshot,
    PrefixCacheReset,
    PrefixLookup,
)
from kvscope_exporter.state.cache.contents import FORGOTTEN_NAMES, WINDOW_NAMES, Contents
from kvscope_exporter.state.cache.lookups import Lookups
from kvscope_exporter.state.cache.prefixes import COUNTERS, Prefixes
from kvscope_exporter.state.cache.regret import Regret
from kvscope_exporter.state.cache.residency import Residency
from kvscope_exporter.state.cache.vetoes import Vetoes
from kvscope_exporter.state.cache.whatif import WhatIf


class Cache(Contents):
    """Counts of lookups by phase, and of missed blocks by cause.

    A name counts as seen once a block with it has been cached: blocks that two sequences compute at
    the same time are cold for both. Names cached and evicted in lost batches were never seen.
    """

    name = "cache"

    def __init__(
        self,
        window: int = WINDOW_NAMES,
        forgotten: int = FORGOTTEN_NAMES,
        counters: int = COUNTERS,
    ) -> None:
        super().__init__(window, forgotten)
        self.regret = Regret()
        self.residency = Residency(self.blocks)
        self.prefixes = Prefixes(counters)
        self.vetoes = Vetoes()
        self._lookups = Lookups()
        self.queried_tokens = self._lookups.queried_tokens
        self.hit_tokens = self._lookups.hit_tokens
        self.queried_blocks = self._lookups.queried_blocks
        self.hit_blocks = self._lookups.hit_blocks
        self.resets = 0

    def _make_depths(self) -> WhatIf:
        self.whatif = WhatIf(self.blocks, self.resident, self.evicted, lambda: self.batch.time_ns)
        return self.whatif

    @property
    def missed_blocks(self) -> dict[str, int]:
        """Missed blocks by cause; while the state is unknown, without those that need the names."""
        if self.known:
            return self._lookups.missed.copy()
        return {"partial": self._lookups.missed["partial"]}

    def now_ns(self, monotonic_ns: int) -> int:
        """Our clock's reading on the producer's clock; time passes while an idle producer is
        silent."""
        return self.batch.time_ns + max(0, monotonic_ns - self.batch.arrived_ns)

    def _introduced(self, event: Hello) -> None:
        super()._introduced(event)
        self.whatif.self_check.begin(event, is_counted=self._is_counted)

    def _begin(self, event: PoolCreated | PoolSnapshot, gone_ns: int) -> None:
        super()._begin(event, gone_ns)
        self.regret.begin()
        self.residency.begin()
        self.vetoes.begin(event)

    def _looked_up(self, event: PrefixLookup) -> None:
        block_size, time_ns = self.block_size, self.batch.time_ns
        if not block_size:  # joined late, and the snapshot is still to come
            return
        self._lookups.ask(event, block_size)
        known = self.known and event.named
        held = self.resident if known else None
        refused, gone_ns = self.vetoes.look_up(event, block_size, held, self.evicted)
        loaded = -(-event.loaded_tokens // block_size)  # a partial block counts as one
        waited = self.counted.taken_since_arrival(event) if self._is_counted else 0
        looked = self._look_up(event)
        too_small = [] if looked is None else self.whatif.count(event, looked, loaded, waited)
        evicted_ns: list[int | None] = []
        if known:
            missed = event.hashes[event.hit_blocks :]
            if self._lookups.miss(missed, self.resident, self.evicted):
                evicted_ns = self.evicted.times_ns(missed)
            if gone_ns is not None:  # here, and of no use: a kind's own part was evicted
                evicted_ns = evicted_ns or [None] * len(missed)
                for index, name in enumerate(missed[:refused]):
                    if name in self.resident.names:
                        evicted_ns[index] = gone_ns
            if evicted_ns:
                # Blocks loaded from elsewhere are not computed again.
                evicted_ns[:loaded] = [None] * min(loaded, len(evicted_ns))
        self.regret.look_up(
            evicted_ns, is_first=not event.resumed, block_size=block_size, time_ns=time_ns
        )
        for blocks_too_small, count in too_small:
            self.regret.too_far(blocks_too_small, count)
        if not event.resumed and event.named:
            self.prefixes.look_up(
                event.hashes,
                event.hit_blocks,
                evicted_ns,
                loaded_blocks=loaded,
                block_size=block_size,
                time_ns=time_ns,
            )

    def _share(self, event: BlocksShared, idle: list[int]) -> None:
        self.residency.share(idle, event.cause, self.batch.time_ns)
        super()._share(event, idle)

    def _release(self, event: BlocksReleased) -> int:
        idle = super()._release(event)
        self.residency.release(idle, self.batch.time_ns)
        return idle

    def _lost(self, event: BlocksEvicted | ContentDropped) -> None:
        if self._known:
            for_room = event.cause == "capacity"
            self.residency.lose(event.blocks, self.batch.time_ns, for_room=for_room)
            super()._lost(event)

    def _reset(self, event: PrefixCacheReset) -> None:
        self.resets += 1
        super()._reset(event)
