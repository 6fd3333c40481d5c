"""Streams of events as our engine makes them: its scheduler and pool, with a runner that says 1."""

from collections.abc import Iterator, Sequence
from random import Random

from kvscope_engine.block_pool import BlockPool
from kvscope_engine.config import SchedulerConfig
from kvscope_engine.hashing import PrefixHasher, chain_seed
from kvscope_engine.kv_manager import KVManager
from kvscope_engine.request import Request, SamplingParams
from kvscope_engine.request import Sequence as EngineSequence
from kvscope_engine.scheduler import Scheduler
from kvscope_engine.step import Step
from kvscope_engine.step_plan import SampledToken, StepPlan
from kvscope_events.bus import EventBus, Subscription
from kvscope_events.events import CONTRACT_VERSION, Batch, DeviceMemorySampled, Hello
from kvscope_events.producers import ENGINE_EVENTS, in_order

BLOCK_SIZE = 16
BLOCK_FIELDS = ("blocks", "cached", "free", "shared")
MAX_MODEL_LEN = 8192
HELLO = Hello(
    contract=CONTRACT_VERSION,
    session="benchmark",
    server="kvscope",
    server_version="",
    model_name="bench",
    engine="0",
    pid=1,
    ready=True,
    tells=in_order(ENGINE_EVENTS),
    max_model_len=MAX_MODEL_LEN,
)


def block_events(batches: Sequence[Batch]) -> int:
    """The number of blocks named in events; names that a lookup queries do not count."""
    named = (
        getattr(event, field, None)
        for batch in batches
        for event in batch.events
        for field in BLOCK_FIELDS
    )
    return sum(len(blocks) for blocks in named if isinstance(blocks, list))  # others are counts


class _Runner:
    def execute(self, plan: StepPlan) -> list[SampledToken | None]:
        return [SampledToken(1)] * len(plan.rows)

    def self_test(self) -> None:
        raise AssertionError("no step raises")

    def drop_caches(self) -> None:
        pass

    def sample_memory(self) -> DeviceMemorySampled:
        raise AssertionError("nobody asks")


class Conversations:
    """Users in conversations of several turns on a few system prompts, more than the pool holds.

    Every turn sends the conversation so far: its blocks are found, or evicted meanwhile.
    """

    def __init__(self, seed: int, *, users: int = 96, output_tokens: int = 32) -> None:
        self._random = Random(seed)
        self._systems = [self._tokens(512) for _ in range(4)]
        self._users: list[list[int]] = [[] for _ in range(users)]
        self._output_tokens = output_tokens
        self._next = 0

    def request(self) -> Request:
        """The next turn of one conversation."""
        user = self._random.randrange(len(self._users))
        history = self._users[user]
        if not history or len(history) > 3500:
            history = list(self._random.choice(self._systems))
        prompt = history + self._tokens(self._random.randrange(100, 500))
        output_tokens = self._random.randrange(1, 2 * self._output_tokens)
        self._users[user] = prompt + [1] * output_tokens
        number, self._next = self._next, self._next + 1
        sequence = EngineSequence(
            sequence_id=number,
            request_id=number,
            tokens=prompt,
            prompt_length=len(prompt),
            sampling=SamplingParams(max_tokens=output_tokens, ignore_eos=True),
            hasher=PrefixHasher(chain_seed("bench"), BLOCK_SIZE),
        )
        return Request(request_id=number, sequences=[sequence], arrival_ns=0)

    def _tokens(self, count: int) -> list[int]:
        return [self._random.randrange(50_000) for _ in range(count)]


class Recording:
    """An engine's batches, taken step by step."""

    def __init__(self, num_blocks: int, running: int, seed: int = 0) -> None:
        self.bus = bus = EventBus()
        self._subscription = bus.subscribe(queue_batches=1 << 20)
        bus.emit(HELLO)
        self._pool = BlockPool(num_blocks, BLOCK_SIZE, bus)
        limits = SchedulerConfig(
            max_model_len=MAX_MODEL_LEN, max_num_seqs=running, max_num_batched_tokens=4096
        )
        self._scheduler = Scheduler(limits, KVManager(self._pool, bus), bus, frozenset())
        self._step = Step(self._scheduler, self._pool, _Runner(), bus)
        self._conversations = Conversations(seed)
        self._target = running + running // 4

    def batches(self, wanted: int) -> list[Batch]:
        """Batches with this many block events."""
        found: list[Batch] = []
        count = 0
        while count < wanted:
            new = self.step()
            count += block_events(new)
            found += new
        return found

    def step(self) -> list[Batch]:
        """One step, with as many requests as fit."""
        while self._scheduler.num_running + self._scheduler.num_waiting < self._target:
            self._scheduler.add(self._conversations.request())
        self._step.run()
        self.bus.flush()
        return taken(self._subscription)


def taken(subscription: Subscription) -> list[Batch]:
    """Everything that is queued."""
    batches = []
    while (item := subscription.take()) is not None:
        batches.append(item[0])
    return batches


def churn(num_blocks: int, blocks_each: int, seed: int = 0) -> Iterator[list[Batch]]:
    """A pool in which all content is new: first what fills it, then endlessly what replaces it.

    Each list has 256 requests or what fills the pool; every request takes its blocks and gives
    them back in one step.
    """
    bus = EventBus()
    subscription = bus.subscribe(queue_batches=1 << 20)
    bus.emit(HELLO)
    pool = BlockPool(num_blocks, BLOCK_SIZE, bus)
    random = Random(seed)
    request = 0
    while True:
        for _ in range(256 if request else num_blocks // blocks_each):
            names = [random.randbytes(16) for _ in range(blocks_each)]
            table = pool.allocate(request, blocks_each, "prefill")
            pool.cache(request, table, names, None)
            pool.release(request, table, "finished")
            request += 1
            bus.flush()
        yield taken(subscription)
