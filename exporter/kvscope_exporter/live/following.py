"""Follows an engine for those who look at it: which blocks changed since the last frame, and the
owners, prefixes, sequences and steps that no fold keeps.

The state of each block is not kept here: it is read from the ledger, for the changed blocks only.
What happened before following began is unknown until it happens again.
"""

import itertools
from array import array
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from kvscope_events.events import (
    BlockCopied,
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    ContentDropped,
    Hello,
    NamesCleared,
    NamesRemoved,
    NamesStored,
    PagesReleased,
    PoolCounted,
    PoolCreated,
    PoolSnapshot,
    PrefixCacheReset,
    PrefixLookup,
    RequestArrived,
    RequestFinished,
    RequestPreempted,
    RequestResumed,
    RequestScheduled,
    SequenceAdded,
    SequenceFinished,
    StepCompleted,
)
from kvscope_exporter.live.life import Lives
from kvscope_exporter.live.named import NamedCells
from kvscope_exporter.live.sequences import ENDS, Sequences
from kvscope_exporter.state import Fold

KEPT_STEPS = 200
NO_GROUP = 255
MOST = (1 << 32) - 1
_EPOCHS = itertools.count(1)


class StepNote(NamedTuple):
    """One step, as the page shows it."""

    time_ms: int
    """End, on the producer's clock."""
    duration_us: int
    prefill_tokens: int
    decode_tokens: int
    running: int
    waiting: int
    active_blocks: int
    cached_blocks: int
    free_blocks: int


class LiveFold(Fold):
    """A listener beside the folds; a reader holds these while it reads."""

    name = "live"

    def __init__(self, *, is_shared: bool = False) -> None:
        """is_shared: it follows the stream from its beginning, for every view: as in a replay."""
        self.is_shared = is_shared
        super().__init__(
            {
                PoolCreated: self._began,
                PoolSnapshot: self._began,
            }
        )
        self.epoch = next(_EPOCHS)
        """Grows whenever everything has to be read again; unique in this process."""
        self.since_ns = 0
        """When following began, on the producer's clock; 0: with the first batch."""
        self.changed: set[int] = set()
        """Blocks that changed since the last frame."""
        self.evicted: set[int] = set()
        """Those of them that lost their content."""
        self.owners = array("I")
        """By block: the sequence that took it last, plus one; 0: free, or not known."""
        self.prefixes = array("I")
        """By block: the first four bytes of the name of its chain's first block; 0: not known."""
        self.groups = bytearray()
        """By block; NO_GROUP: not known. Empty: the pool has one group."""
        self.named = NamedCells()
        """Used for an engine that numbers no blocks."""
        self.sequences = Sequences()
        self.steps: deque[StepNote] = deque(maxlen=KEPT_STEPS)
        self.num_steps = 0
        """Steps since following began."""
        self.lives = Lives()
        self._state_known = False

    @property
    def num_pending(self) -> int:
        return self.sequences.num_pending

    def join(self, num_blocks: int, *, has_groups: bool) -> None:
        """Begin in the middle of a stream whose pool is known."""
        self._resize(num_blocks, has_groups=has_groups)
        self._state_known = True

    def join_names(self, hello: Hello, num_cells: int) -> None:
        """Begin in the middle of the stream of an engine that may number no blocks."""
        self.on_hello(hello)
        if self.named.is_followed:
            self.named.clear(num_cells)

    def on_gap(self) -> None:
        self._state_known = False
        self.renew()
        self.sequences.forget()
        self.named.lose()

    def renew(self) -> None:
        """Everything has to be read again."""
        self.epoch = next(_EPOCHS)
        for changes in (self.changed, self.evicted, self.named.changed, self.named.gone):
            changes.clear()

    def _resize(self, num_blocks: int, *, has_groups: bool) -> None:
        self.owners = array("I", bytes(4 * num_blocks))
        self.prefixes = array("I", bytes(4 * num_blocks))
        self.groups = bytearray([NO_GROUP]) * (num_blocks if has_groups else 0)

    def _began(self, event: PoolCreated | PoolSnapshot) -> None:
        self.renew()  # the ledger numbers the places in its LRU from one again
        is_same = isinstance(event, PoolSnapshot) and len(self.owners) == event.num_blocks
        if is_same and self._state_known:
            return  # another reader asked for it: it has nothing new
        self._state_known = True
        if self.named.is_followed:
            self.named.lose()
            self.named.clear(event.num_blocks)
        else:
            self._resize(event.num_blocks, has_groups=len(event.groups) > 1)
        if isinstance(event, PoolCreated):
            self.sequences.forget()

    def on_hello(self, event: Hello) -> None:
        self.named.introduce(event)
        self.sequences.have_tables = "BlocksAllocated" in event.tells

    def on_pool_counted(self, event: PoolCounted) -> None:
        if self.named.is_followed and len(self.named.names) < event.num_blocks:
            self.renew()
            self.named.lose()
            self.named.clear(event.num_blocks)

    def on_names_stored(self, event: NamesStored) -> None:
        if self._is_named(event):
            if self.named.store(event, self.batch.time_ns):
                self.renew()
            self.lives.note(event, self.batch.time_ns)

    def on_names_removed(self, event: NamesRemoved) -> None:
        if self._is_named(event):
            self.named.remove(event)
            self.lives.note(event, self.batch.time_ns)

    def on_names_cleared(self, event: NamesCleared) -> None:
        if self._is_named(event):
            self.named.clear()
            self.renew()

    def _is_named(self, event: NamesStored | NamesRemoved | NamesCleared) -> bool:
        return self.named.is_followed and event.tier == "device"

    def on_pages_released(self, event: PagesReleased) -> None:
        if event.cause in ENDS:
            self.named.end(event.sequence)

    def _own(self, sequence: int | None, blocks: Iterable[int], group: int | None) -> None:
        owners, prefixes, groups, count = self.owners, self.prefixes, self.groups, len(self.owners)
        root = self.sequences.root_of(sequence)
        owner = 0 if sequence is None or not 0 <= sequence < MOST else sequence + 1
        for block in blocks:
            if 0 <= block < count:
                owners[block] = owner
                prefixes[block] = root
                if groups:
                    groups[block] = NO_GROUP if group is None else min(group, NO_GROUP)

    def on_blocks_allocated(self, event: BlocksAllocated) -> None:
        self.changed.update(event.blocks)
        self._own(event.sequence, event.blocks, event.group)
        self.sequences.take(
            event.sequence, event.blocks, event.group, event.cause, self.batch.time_ns
        )
        self.lives.note(event, self.batch.time_ns)

    def on_blocks_shared(self, event: BlocksShared) -> None:
        self.changed.update(event.blocks)
        if event.cause in ("prefix_hit", "fork"):
            self._own(event.sequence, event.blocks, event.group)
        self.sequences.take(
            event.sequence, event.blocks, event.group, event.cause, self.batch.time_ns
        )
        self.lives.note(event, self.batch.time_ns)

    def on_blocks_cached(self, event: BlocksCached) -> None:
        self.changed.update(event.blocks)
        if event.parent is None and event.hashes:
            self.sequences.begin_chain(event.sequence, event.hashes[0])
        root = self.sequences.root_of(event.sequence)
        prefixes, count = self.prefixes, len(self.prefixes)
        for block in event.blocks:
            if 0 <= block < count:
                prefixes[block] = root
        self.lives.note(event, self.batch.time_ns)

    def on_blocks_released(self, event: BlocksReleased) -> None:
        self.changed.update(event.cached, event.free, event.shared)
        owners, prefixes, count = self.owners, self.prefixes, len(self.owners)
        for block in event.free:
            if 0 <= block < count:
                owners[block] = prefixes[block] = 0
        self.sequences.give_back(event)
        self.lives.note(event, self.batch.time_ns)

    def on_blocks_evicted(self, event: BlocksEvicted) -> None:
        self.changed.update(event.blocks)
        self.evicted.update(event.blocks)
        owners, prefixes, count = self.owners, self.prefixes, len(self.owners)
        for block in event.blocks:
            if 0 <= block < count:
                owners[block] = prefixes[block] = 0
        self.lives.note(event, self.batch.time_ns)

    def on_content_dropped(self, event: ContentDropped) -> None:
        self.changed.update(event.blocks)
        self.lives.note(event, self.batch.time_ns)

    def on_block_copied(self, event: BlockCopied) -> None:
        self.sequences.copy(event)
        self.lives.note(event, self.batch.time_ns)

    def on_prefix_cache_reset(self, event: PrefixCacheReset) -> None:
        self.lives.note(event, self.batch.time_ns)

    def on_prefix_lookup(self, event: PrefixLookup) -> None:
        self.sequences.look_up(event, self.batch.time_ns)
        if self.named.is_followed:
            if self.named.look_up(event, self.batch.time_ns):
                self.renew()
            self.lives.note(event, self.batch.time_ns)

    def on_request_arrived(self, event: RequestArrived) -> None:
        self.sequences.arrive(event)

    def on_sequence_added(self, event: SequenceAdded) -> None:
        self.sequences.add(event, self.batch.time_ns)

    def on_request_scheduled(self, event: RequestScheduled) -> None:
        self.sequences.schedule(event.request, self.batch.time_ns)

    def on_request_preempted(self, event: RequestPreempted) -> None:
        self.sequences.preempt(event, self.batch.time_ns)

    def on_request_resumed(self, event: RequestResumed) -> None:
        self.sequences.resume(event, self.batch.time_ns)

    def on_sequence_finished(self, event: SequenceFinished) -> None:
        self.sequences.end(event, self.batch.time_ns)

    def on_request_finished(self, event: RequestFinished) -> None:
        self.sequences.finish(event)

    def on_step_completed(self, event: StepCompleted) -> None:
        self.num_steps += 1
        self.named.settle(self.batch.time_ns)
        self.sequences.step(event, self.batch.time_ns)
        self.steps.append(
            StepNote(
                self.batch.time_ns // 1_000_000,
                event.duration_ns // 1000,
                event.prefill_tokens,
                event.decode_tokens,
                event.running,
                event.waiting,
                event.active_blocks,
                event.cached_blocks,
                event.free_blocks,
            )
        )
