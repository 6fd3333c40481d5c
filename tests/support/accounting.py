"""The engine without a model: real scheduler, manager, pool, bus, ledger; content checked by slot.

`ContentRunner` writes into every slot a digest of the whole sequence up to that token and checks,
before it samples, that all slots of a row still hold what the row's tokens say. A block freed too
early, shared wrongly or found under a wrong name shows at once. The next token is a function of the
digest and the seed, so a sequence has one right continuation, whatever was preempted or cached on
the way.
"""

import os
from collections import Counter, abc

from kvscope_engine.block_pool import BlockPool
from kvscope_engine.config import SchedulerConfig, SchedulingPolicy
from kvscope_engine.hashing import PrefixHasher, chain_seed
from kvscope_engine.kv_manager import KVManager
from kvscope_engine.request import Request, SamplingParams, Sequence, SequenceState
from kvscope_engine.scheduler import Scheduler
from kvscope_engine.step_plan import SampledToken, ScheduledSequence, StepPlan
from kvscope_engine.swap.chooser import Chooser
from kvscope_engine.swap.host_pool import HostPool
from kvscope_engine.swap.manager import SwapManager
from kvscope_events.bus import EventBus
from kvscope_events.events import DeviceMemorySampled, EngineEvent
from kvscope_exporter.state import Ledger
from tests.support.pool_state import pool_state

VOCABULARY = 7
"""Few tokens: equal prefixes and equal continuations happen often."""
NO_EOS: frozenset[int] = frozenset()


def next_token(digest: int, seed: int | None) -> int:
    return ((digest >> 7) + (seed or 0)) % VOCABULARY


def extend_digest(digest: int, token: int) -> int:
    return hash((digest, token))


def continuation(prompt: abc.Sequence[int], count: int, seed: int | None = None) -> list[int]:
    """The output of any correct engine; samples of one prompt have a seed each, so they differ."""
    digest = 0
    for token in prompt:
        digest = extend_digest(digest, token)
    output = []
    for _ in range(count):
        output.append(next_token(digest, seed))
        digest = extend_digest(digest, output[-1])
    return output


class ContentRunner:
    """A `Runner` whose KV is a digest per slot; the `BlockCopier` and `HostMover` of them."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._slots: dict[tuple[int, int], int] = {}
        self._host: dict[tuple[int, int], int] = {}
        self.num_swaps = 0
        """Copies out and in."""

    def execute(self, plan: StepPlan) -> list[SampledToken | None]:
        rows = plan.rows
        digests = [self._write(row) for row in rows]
        for row, expected in zip(rows, digests, strict=True):
            for position, digest in enumerate(expected if row.count else ()):  # a fork has no slots
                slot = self._slot(row.sequence, position)
                assert self._slots.get(slot) == digest, f"slot {slot} holds other content"
        return [
            SampledToken(next_token(expected[-1], row.sequence.sampling.seed))
            if row.samples
            else None
            for row, expected in zip(rows, digests, strict=True)
        ]

    def self_test(self) -> None:
        """There is nothing to test."""

    def copy(self, source: int, target: int) -> None:
        assert source != target
        self._copy(self._slots, [source], self._slots, [target])

    def swap_out(self, blocks: abc.Sequence[int], host_blocks: abc.Sequence[int]) -> None:
        self.num_swaps += 1
        self._copy(self._slots, blocks, self._host, host_blocks)

    def swap_in(self, host_blocks: abc.Sequence[int], blocks: abc.Sequence[int]) -> None:
        self.num_swaps += 1
        self._copy(self._host, host_blocks, self._slots, blocks)

    def _copy(
        self,
        source: dict[tuple[int, int], int],
        from_blocks: abc.Sequence[int],
        target: dict[tuple[int, int], int],
        to_blocks: abc.Sequence[int],
    ) -> None:
        for old, new in zip(from_blocks, to_blocks, strict=True):
            for offset in range(self._block_size):
                target.pop((new, offset), None)
                if (old, offset) in source:
                    target[new, offset] = source[old, offset]

    def drop_caches(self) -> None:
        """Nothing is held."""

    def sample_memory(self) -> DeviceMemorySampled:
        return DeviceMemorySampled(os.getpid(), None, 0, 0)

    def _write(self, row: ScheduledSequence) -> list[int]:
        """Write the row's tokens; returns the digests that all its slots must hold."""
        digests, digest = [], 0
        for position, token in enumerate(row.sequence.tokens[: row.start + row.count]):
            digest = extend_digest(digest, token)
            digests.append(digest)
            if position >= row.start:
                self._slots[self._slot(row.sequence, position)] = digest
        return digests

    def _slot(self, sequence: Sequence, position: int) -> tuple[int, int]:
        block, offset = divmod(position, self._block_size)
        return sequence.block_table[block], offset


class Accounting:
    """One engine on one thread, stepped by hand."""

    def __init__(
        self,
        *,
        num_blocks: int = 12,
        block_size: int = 4,
        max_model_len: int = 40,
        max_num_seqs: int = 4,
        max_num_batched_tokens: int = 16,
        enable_chunked_prefill: bool = True,
        enable_prefix_caching: bool = True,
        policy: SchedulingPolicy = "fcfs",
        reserved: int = 0,
        forks: bool = True,
        swap_blocks: int = 0,
        chooser: Chooser | None = None,
        priority_aging_seconds: float = 60.0,
        runner: ContentRunner | None = None,
    ) -> None:
        """swap_blocks: of the host; 0: victims are recomputed. chooser: decides for each one."""
        self.bus = EventBus()
        self.ledger = Ledger()
        self.events: list[EngineEvent] = []
        """All that was flushed."""
        self._subscription = self.bus.subscribe()
        self.pool = BlockPool(
            num_blocks, block_size, self.bus, reserved=reserved, swap_blocks=swap_blocks
        )
        self.runner = runner or ContentRunner(block_size)
        self.kv = KVManager(
            self.pool,
            self.bus,
            enable_prefix_caching=enable_prefix_caching,
            copier=self.runner if forks else None,
        )
        self.config = SchedulerConfig(
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            enable_chunked_prefill=enable_chunked_prefill,
            policy=policy,
            priority_aging_seconds=priority_aging_seconds,
        )
        self.swap: SwapManager | None = None
        if swap_blocks:
            host = HostPool(swap_blocks)
            self.swap = SwapManager(self.pool, host, self.runner, self.bus, chooser)
        self.scheduler = Scheduler(self.config, self.kv, self.bus, NO_EOS, self.swap)
        self.requests: list[Request] = []
        self.sequences: list[Sequence] = []

    @property
    def live(self) -> list[Sequence]:
        return [s for s in self.sequences if s.state is not SequenceState.FINISHED]

    def add(self, prompt: abc.Sequence[int], max_tokens: int, priority: int = 0) -> Sequence:
        """A call of one sequence; returns the sequence."""
        return self.call([prompt], max_tokens, priority=priority).sequences[0]

    def call(
        self,
        prompts: abc.Sequence[abc.Sequence[int]],
        max_tokens: int,
        n: int = 1,
        priority: int = 0,
        arrival_ns: int | None = None,
    ) -> Request:
        """A call of n sequences for each prompt. Its numbers are not those of its sequences.

        arrival_ns: None: a nanosecond after the call before it.
        """
        request_id = 1_000 + len(self.requests)
        sequences = [
            Sequence(
                sequence_id=len(self.sequences) + index,
                request_id=request_id,
                tokens=list(prompt),
                prompt_length=len(prompt),
                sampling=SamplingParams(max_tokens=max_tokens, seed=index % n),
                hasher=PrefixHasher(chain_seed("model"), self.pool.block_size),
            )
            for index, prompt in enumerate(prompt for prompt in prompts for _ in range(n))
        ]
        request = Request(
            request_id=request_id,
            sequences=sequences,
            arrival_ns=len(self.requests) if arrival_ns is None else arrival_ns,
            choices_per_prompt=n,
            priority=priority,
        )
        self.requests.append(request)
        self.sequences += sequences
        self.scheduler.add(request)
        return request

    def step(self) -> int:
        """One engine step; returns the number of tokens it computed."""
        plan = self.scheduler.schedule()
        assert plan.prefill_tokens + plan.decode_tokens <= self.config.max_num_batched_tokens
        sampled = self.runner.execute(plan)
        self.scheduler.update(plan, [None if s is None else s.token_id for s in sampled])
        self.flush()
        return plan.prefill_tokens + plan.decode_tokens

    def flush(self) -> None:
        """End the step on the bus and fold its events."""
        self.bus.flush()
        while (taken := self._subscription.take()) is not None:
            batch, lost = taken
            assert not lost
            self.events += batch.events
            self.ledger.on_batch(batch)

    def run(self) -> None:
        """Step until nothing lives; fails if a step computes nothing."""
        while self.live:
            assert self.step() > 0, "work, but nothing was scheduled"
            self.check()

    def check(self) -> None:
        """Every block accounted for: pool, ledger and block tables say the same."""
        pool, ledger = self.pool, self.ledger
        pool.check()
        ledger.check()
        assert ledger.imbalance == 0, "events contradict each other"
        state = pool_state(pool, self.swap)
        assert ledger.state() == state, "the ledger folded from events is not the pool's state"
        states = pool.num_active + pool.num_cached + pool.num_free + pool.reserved
        assert states == pool.num_blocks, "states do not sum to the capacity"
        owners = Counter(block for sequence in self.live for block in sequence.block_table)
        counts = {block: count for block, count in enumerate(state.ref_counts) if count}
        assert owners == counts, "reference counts are not the number of owners"
        for sequence in self.live:
            assert len(set(sequence.block_table)) == len(sequence.block_table)
            slots = len(sequence.block_table) * pool.block_size
            assert slots >= sequence.num_computed_tokens
        self._check_slots()
        self._check_waiting()
        self._check_swap()
        self._check_calls()

    def _check_slots(self) -> None:
        """All owners of a block say the same of its slots; those that hold nothing count once."""
        size = self.pool.block_size
        filled: dict[int, int] = {}
        partial: list[int] = []
        for sequence in self.live:
            for index, block in enumerate(sequence.block_table):
                own = min(size, max(0, sequence.num_computed_tokens - index * size))
                if filled.setdefault(block, own) != own:
                    raise AssertionError(f"owners of block {block} disagree about its slots")
                if own < size:
                    partial.append(block)
        unfilled = sum(size - own for own in filled.values())
        assert self.scheduler.num_unfilled_slots == unfilled, "slots are counted wrongly"
        shared = {block for block, count in Counter(partial).items() if count > 1}
        assert self.kv._shared_tails == shared, "blocks to be copied before a write"

    def _check_waiting(self) -> None:
        """Every sequence that waits is in the queue, or hangs on one that computes its prompt."""
        waiting = [s for s in self.live if s.state is SequenceState.WAITING]
        assert self.scheduler.num_waiting == len(waiting)
        hanging = [s for s in waiting if s.leader is not None]
        followers = [s for leader in self.live for s in leader.forks]
        assert sorted(map(id, hanging)) == sorted(map(id, followers))
        for sequence in hanging:
            leader = sequence.leader
            assert leader is not None
            assert leader.state is not SequenceState.FINISHED
            assert leader.num_computed_tokens < leader.prompt_length == len(leader.tokens)
            assert leader.prompt == sequence.tokens
            assert not sequence.block_table

    def _check_swap(self) -> None:
        """Every host block has one owner, which waits, owns nothing else and has content there."""
        owners = [sequence for sequence in self.live if sequence.host_blocks]
        owned = [block for sequence in owners for block in sequence.host_blocks]
        assert len(set(owned)) == len(owned), "two sequences own a host block"
        assert self.scheduler.num_swapped == len(owners)
        assert not [s for s in self.sequences if s.host_blocks and s not in owners]
        for sequence in owners:
            assert sequence.state is SequenceState.WAITING
            assert not sequence.block_table
            blocks = -(-sequence.discarded_tokens // self.pool.block_size)
            assert len(sequence.host_blocks) == blocks
        if self.swap is not None:
            self.swap.host.check()
            assert self.swap.host.num_used == len(owned), "host blocks without an owner"
            assert self.swap.sequences == set(owners)
            calls = {s.request_id for s in owners}
            stopped = [r for r in self.requests if r.request_id in calls and not r.num_running]
            assert self.scheduler.num_requests_swapped == len(stopped)

    def _check_calls(self) -> None:
        """A call runs while one of its sequences does, and lives while one is left."""
        states = [{sequence.state for sequence in request.sequences} for request in self.requests]
        running = sum(SequenceState.RUNNING in states_of_one for states_of_one in states)
        ended = sum(states_of_one == {SequenceState.FINISHED} for states_of_one in states)
        book = self.scheduler.requests
        assert book.num_running == running
        assert (len(book), book.num_ended) == (len(self.requests) - ended, ended)
        assert book.num_waiting == len(self.requests) - ended - running
