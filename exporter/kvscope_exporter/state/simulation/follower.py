"""Takes pools of other sizes through all that the real one does, from its events.

The real pool decides who is admitted when, and how many tokens a step computes; each other pool
finds what it holds, and computes the rest. Where it has to compute more than the real one did, its
further chunks follow at once.
"""

from collections import deque
from collections.abc import Callable, Sequence

from kvscope_events.events import (
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    ContentDropped,
    EngineEvent,
    PoolCreated,
    PoolSnapshot,
    PrefixCacheReset,
    PrefixLookup,
    SequenceAdded,
    SequenceFinished,
    StepCompleted,
    StepScheduled,
)
from kvscope_events.names import CONTENT_BYTES, group_of, suffix_of
from kvscope_exporter.state.simulation.coordinator import Coordinator
from kvscope_exporter.state.simulation.groups import layers_of
from kvscope_exporter.state.simulation.runs import Digest
from kvscope_exporter.state.simulation.strangers import Strangers

MAX_WAITING = 1 << 16
"""Events of one step that wait for its end, at most."""

_INVALID = frozenset({"ordered", "invalid"})
"""Causes for which content is lost at any size."""
ENDS = frozenset({"finished", "aborted", "preempted", "failed_load"})
"""Causes of a release of all that a sequence has in a group."""
FOLLOWED: tuple[type[EngineEvent], ...] = (
    *(PrefixLookup, BlocksAllocated, BlocksCached, BlocksReleased, BlocksEvicted),
    *(ContentDropped, PrefixCacheReset, SequenceAdded, SequenceFinished),
    *(StepScheduled, StepCompleted),
)
"""Events that `Follower.take` needs."""
OnLookup = Callable[[PrefixLookup, Sequence[int]], None]
"""Called with each lookup, and what each pool found, in blocks."""


class _Sequence:
    """Progress of a sequence in the real pool since it was last admitted."""

    __slots__ = ("blocks", "cached", "computed", "digests", "emitted", "target")

    def __init__(self, digests: list[Digest], target: int, computed: int, hit_blocks: int) -> None:
        self.digests = digests
        self.target = target
        self.computed = computed
        self.cached = hit_blocks  # leading blocks named in the group of full attention
        self.blocks = 0  # slots in a table, once the prompt is computed
        self.emitted = 0


class Follower:
    def __init__(
        self,
        pool: PoolCreated | PoolSnapshot,
        capacities: Sequence[int],
        on_lookup: OnLookup,
        retaining: int = 0,
    ) -> None:
        """retaining: blocks of one more pool, the last, that keeps every window and state; 0:
        no such pool."""
        groups, size = pool.groups, pool.block_size
        layers = layers_of(groups, pool.retention)
        self.pools = [Coordinator(capacity, layers, size) for capacity in capacities]
        if retaining:
            self.pools.append(Coordinator(retaining, layers_of(groups, None), size))
        self._block_size = size
        full = next(i for i, group in enumerate(groups) if group.kind == "full_attention")
        self._full = suffix_of(full)
        self._on_lookup = on_lookup
        self._strangers = Strangers(self.pools)
        if isinstance(pool, PoolSnapshot):
            self._strangers.begin(pool)
        self._sequences: dict[int, _Sequence] = {}
        self._prompts: dict[int, int] = {}
        self._waiting: list[EngineEvent] = []
        self._under_way: deque[int] = deque()  # steps that are not completed
        self._depth = 0  # the most steps that were under way while another was put together
        self._fresh: dict[int, int] = {}
        """Sequences whose prompt is computed, and in how many steps from then on what their last
        chunks no longer see is given back."""
        self._owing_one: list[int] = []
        self._ended: set[int] = set()  # in this step
        self._left = [0] * len(self.pools)
        self._budget = 0

    def take(self, event: EngineEvent) -> None:
        """The next event; it has its effect once the step that it belongs to is known."""
        if isinstance(event, StepScheduled):
            self._scheduled(event)
            self._under_way.append(0)
        elif isinstance(event, StepCompleted):
            self._run({}, 0)
            if event.prefill_tokens + event.decode_tokens and self._under_way:
                self._under_way.popleft()
            for number in event.emitted:
                sequence = self._sequences.get(number)
                if sequence is not None:
                    sequence.emitted += 1
        elif isinstance(event, SequenceAdded):
            self._prompts[event.sequence] = event.prompt_tokens
        else:
            self._waiting.append(event)
            if len(self._waiting) >= MAX_WAITING:
                self._run({}, 0)

    @property
    def num_pending(self) -> int:
        """Sequences that have begun and not ended."""
        return len(self._prompts) + len(self._sequences)

    def check(self) -> None:
        """Assert every invariant of every pool; O(blocks)."""
        for pool, tables in zip(self.pools, self._strangers.tables(), strict=True):
            pool.check(tables)

    def settle(self) -> None:
        """Apply what waits for the end of a step."""
        self._run({}, 0)

    def _scheduled(self, event: StepScheduled) -> None:
        chunks = dict(zip(event.sequences, event.tokens, strict=False))
        # One that owes only one token is not listed.
        for number in self._owing_one:
            chunks.setdefault(number, 1)
        self._owing_one.clear()
        for lookup in self._waiting:
            if isinstance(lookup, PrefixLookup):
                found = lookup.hit_blocks * self._block_size + lookup.loaded_tokens
                chunks.setdefault(lookup.sequence, max(0, lookup.queried_tokens - found))
        fresh = list(self._fresh.items())
        self._run(chunks, event.room)
        # The real pool says nothing if its own chunks ended where it had nothing to give back.
        for number, steps in fresh:
            self._skip(number)
            if steps:
                self._fresh[number] = steps - 1
            else:
                self._fresh.pop(number, None)

    def _run(self, chunks: dict[int, int], room: int) -> None:
        events, self._waiting = self._waiting, []
        self._learn(events)
        budget = sum(chunks.values()) + room
        self._left = [budget] * len(self.pools)
        self._budget = budget
        done: set[int] = set()
        self._ended.clear()
        for event in events:
            if isinstance(event, PrefixLookup):
                self._admit(event)
            elif isinstance(event, BlocksAllocated):
                number = event.sequence
                if number is None or number not in self._sequences:
                    self._strangers.take(event.blocks)
                elif number not in done:
                    done.add(number)
                    self._allocate(number, len(event.blocks), chunks)
            elif isinstance(event, BlocksCached):
                self._name(event)
            elif isinstance(event, BlocksReleased):
                self._release(event)
            elif isinstance(event, PrefixCacheReset):
                for pool in self.pools:
                    pool.pool.reset()
            elif isinstance(event, SequenceFinished):
                self._prompts.pop(event.sequence, None)
            elif isinstance(event, BlocksEvicted | ContentDropped) and event.cause in _INVALID:
                self._forget(event)
        for number in chunks:
            if number not in done:
                self._allocate(number, 0, chunks)

    def _learn(self, events: Sequence[EngineEvent]) -> None:
        """The names that sequences get in this step, before any pool needs them."""
        size = self._block_size
        for event in events:
            if isinstance(event, PrefixLookup) and event.sequence is not None:
                digests = [name[:CONTENT_BYTES] for name in event.hashes]
                found = event.hit_blocks * size + event.loaded_tokens
                self._sequences[event.sequence] = _Sequence(
                    digests, event.queried_tokens, found, event.hit_blocks
                )
            elif isinstance(event, BlocksCached) and event.hashes:
                sequence = self._sequences.get(event.sequence or 0)
                if sequence is None or event.hashes[0][CONTENT_BYTES:] != self._full:
                    continue
                digests, known = sequence.digests, sequence.cached
                sequence.cached += len(event.hashes)
                digests += [n[:CONTENT_BYTES] for n in event.hashes[max(0, len(digests) - known) :]]

    def _admit(self, event: PrefixLookup) -> None:
        number = event.sequence
        digests = self._sequences[number].digests
        prompt = self._prompts.get(number, event.queried_tokens)
        full = (event.queried_tokens - 1) // self._block_size
        found = []
        for pool in self.pools:
            found.append(pool.admit(number, digests, event.queried_tokens, prompt, full))
        self._on_lookup(event, found)

    def _allocate(self, number: int, blocks: int, chunks: dict[int, int]) -> None:
        sequence = self._sequences.get(number)
        if sequence is None:
            return
        if sequence.computed >= sequence.target:
            sequence.blocks += blocks
            if number in self._fresh:
                self._skip(number)
            for pool in self.pools:
                pool.grow(number, sequence.blocks)
            return
        sequence.computed += chunks.get(number, sequence.target - sequence.computed)
        is_last = sequence.computed >= sequence.target
        if sequence.computed == sequence.target - 1:
            self._owing_one.append(number)
        if is_last:
            sequence.blocks = -(-sequence.target // self._block_size)
            self._fresh[number] = len(self._under_way)
        lag = len(self._under_way)
        self._depth = max(self._depth, lag)
        for index, pool in enumerate(self.pools):
            self._left[index] -= pool.compute(number, self._left[index], lag)
            while is_last and pool.owes(number):
                if not pool.compute(number, self._budget, self._depth):
                    break

    def _name(self, event: BlocksCached) -> None:
        sequence = self._sequences.get(event.sequence or 0)
        if sequence is None:
            self._strangers.name(event.blocks, event.hashes)
            return
        if not event.hashes or event.hashes[0][CONTENT_BYTES:] != self._full:
            return
        if sequence.computed >= sequence.target and event.sequence is not None:
            for pool in self.pools:
                pool.name(event.sequence, len(sequence.digests))

    def _release(self, event: BlocksReleased) -> None:
        number = event.sequence
        sequence = None if number is None else self._sequences.get(number)
        if number is None or sequence is None:
            if self._strangers and number not in self._ended:
                tail_first = (*event.cached, *event.free, *event.shared)
                self._strangers.release(tail_first)
            return
        if event.cause in ENDS:
            del self._sequences[number]
            self._fresh.pop(number, None)
            self._ended.add(number)  # further groups of it follow
            for pool in self.pools:
                pool.end(number)
        elif event.cause == "out_of_window":
            self._skip(number)

    def _skip(self, number: int) -> None:
        sequence = self._sequences.get(number)
        if sequence is None:
            return
        tokens: int | None = None
        if sequence.computed >= sequence.target and sequence.emitted:
            tokens = sequence.target + sequence.emitted - 1
        for pool in self.pools:
            pool.skip(number, tokens, len(self._under_way))

    def _forget(self, event: BlocksEvicted | ContentDropped) -> None:
        for name in event.hashes:
            group = group_of(name)
            for pool in self.pools:
                pool.pool.forget(group, name[:CONTENT_BYTES])
