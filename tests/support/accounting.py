"""The engine without a model: real scheduler, manager, pool, bus, ledger; content checked by slot.

`ContentRunner` writes into every slot a digest of the whole sequence up to that token and checks,
before it samples, that all slots of a row still hold what the row's tokens say. A block freed too
early, shared wrongly or found under a wrong name shows at once. The next token is a function of the
digest, so a sequence has one right continuation, whatever was preempted or cached on the way.
"""

import os
from collections import Counter
from collections.abc import Sequence

from engine.block_pool import BlockPool
from engine.config import SchedulerConfig, SchedulingPolicy
from engine.hashing import PrefixHasher, chain_seed
from engine.kv_manager import KVManager
from engine.request import Request, RequestState, SampledToken, SamplingParams, ScheduledSequence
from engine.scheduler import Scheduler
from exporter.fold import Ledger
from kvscope_events.bus import EventBus
from kvscope_events.events import DeviceMemorySampled, EngineEvent

VOCABULARY = 7
"""Few tokens: equal prefixes and equal continuations happen often."""
NO_EOS: frozenset[int] = frozenset()


def next_token(digest: int) -> int:
    return (digest >> 7) % VOCABULARY


def extend_digest(digest: int, token: int) -> int:
    return hash((digest, token))


def continuation(prompt: Sequence[int], count: int) -> list[int]:
    """What any correct engine generates."""
    digest = 0
    for token in prompt:
        digest = extend_digest(digest, token)
    output = []
    for _ in range(count):
        output.append(next_token(digest))
        digest = extend_digest(digest, output[-1])
    return output


class ContentRunner:
    """A `Runner` whose KV is a digest per slot."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._slots: dict[tuple[int, int], int] = {}

    def execute(self, rows: Sequence[ScheduledSequence]) -> list[SampledToken | None]:
        digests = [self._write(row) for row in rows]
        for row, expected in zip(rows, digests, strict=True):
            for position, digest in enumerate(expected):
                slot = self._slot(row.request, position)
                assert self._slots.get(slot) == digest, f"slot {slot} holds other content"
        return [
            SampledToken(next_token(expected[-1])) if row.samples else None
            for row, expected in zip(rows, digests, strict=True)
        ]

    def drop_caches(self) -> None:
        """Nothing is held."""

    def sample_memory(self) -> DeviceMemorySampled:
        return DeviceMemorySampled(os.getpid(), None, 0, 0)

    def _write(self, row: ScheduledSequence) -> list[int]:
        """Write the row's tokens; returns the digests that all its slots must hold."""
        digests, digest = [], 0
        for position, token in enumerate(row.request.tokens[: row.start + row.count]):
            digest = extend_digest(digest, token)
            digests.append(digest)
            if position >= row.start:
                self._slots[self._slot(row.request, position)] = digest
        return digests

    def _slot(self, request: Request, position: int) -> tuple[int, int]:
        block, offset = divmod(position, self._block_size)
        return request.block_table[block], offset


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
    ) -> None:
        self.bus = EventBus()
        self.ledger = Ledger()
        self.events: list[EngineEvent] = []
        """All that was flushed."""
        self._subscription = self.bus.subscribe()
        self.pool = BlockPool(num_blocks, block_size, self.bus, reserved=reserved)
        self.kv = KVManager(self.pool, self.bus, enable_prefix_caching=enable_prefix_caching)
        self.config = SchedulerConfig(
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            enable_chunked_prefill=enable_chunked_prefill,
            policy=policy,
        )
        self.scheduler = Scheduler(self.config, self.kv, self.bus, NO_EOS)
        self.runner = ContentRunner(block_size)
        self.requests: list[Request] = []

    @property
    def live(self) -> list[Request]:
        return [r for r in self.requests if r.state is not RequestState.FINISHED]

    def add(self, prompt: Sequence[int], max_tokens: int, priority: int = 0) -> Request:
        request = Request(
            request_id=len(self.requests),
            tokens=list(prompt),
            prompt_length=len(prompt),
            sampling=SamplingParams(max_tokens=max_tokens),
            hasher=PrefixHasher(chain_seed("model"), self.pool.block_size),
            arrival_ns=len(self.requests),
            priority=priority,
        )
        self.requests.append(request)
        self.scheduler.add(request)
        return request

    def step(self) -> int:
        """One engine step; returns the number of tokens it computed."""
        plan = self.scheduler.schedule()
        assert plan.prefill_tokens + plan.decode_tokens <= self.config.max_num_batched_tokens
        sampled = self.runner.execute(plan.rows)
        self.scheduler.update(plan, [None if s is None else s.token_id for s in sampled])
        self.flush()
        return plan.prefill_tokens + plan.decode_tokens

    def flush(self) -> None:
        """End the step on the bus and fold its events."""
        self.bus.flush()
        while (batch := self._subscription.take()) is not None:
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
        state = pool.snapshot()
        assert ledger.state() == state, "the ledger folded from events is not the pool's state"
        states = pool.num_active + pool.num_cached + pool.num_free + pool.reserved
        assert states == pool.num_blocks, "states do not sum to the capacity"
        owners = Counter(block for request in self.live for block in request.block_table)
        counts = {block: count for block, count in enumerate(state.ref_counts) if count}
        assert owners == counts, "reference counts are not the number of owners"
        for request in self.live:
            assert len(set(request.block_table)) == len(request.block_table)
            assert len(request.block_table) * pool.block_size >= request.num_computed_tokens
        self._check_tails()

    def _check_tails(self) -> None:
        """No two sequences may write to one block: only named (full) blocks have two owners."""
        hashes = self.pool.snapshot().hashes
        owners = Counter(block for request in self.live for block in request.block_table)
        assert all(hashes[block] is not None for block, count in owners.items() if count > 1)
