"""A started step loop over real scheduler, manager and pool, with a runner that a test can hold."""

import itertools
import threading
import time

from kvscope_engine.block_pool import BlockPool
from kvscope_engine.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from kvscope_engine.hashing import PrefixHasher, chain_seed
from kvscope_engine.introduction import Introduction
from kvscope_engine.kv_manager import KVManager
from kvscope_engine.out_of_memory import DeviceOutOfMemoryError
from kvscope_engine.request import Request, SamplingParams, Sequence
from kvscope_engine.scheduler import Scheduler
from kvscope_engine.step import Step, StepOutput
from kvscope_engine.step_loop import StepLoop
from kvscope_engine.step_plan import SampledToken, StepPlan
from kvscope_events.bus import EventBus, Subscription
from kvscope_events.events import EngineEvent
from tests.support.accounting import ContentRunner

PATIENCE_SECONDS = 10.0
BLOCK_SIZE = 4


class BrokenDeviceError(Exception):
    """The error of a broken device."""


class Gate(ContentRunner):
    """A runner that can be held and broken from outside."""

    def __init__(self) -> None:
        super().__init__(BLOCK_SIZE)
        self.open = threading.Event()
        self.open.set()
        self.broken = False
        self.memory_tokens: int | None = None
        """Tokens of a step that the memory is enough for; None: any number."""
        self.steps_until_hold: int | None = None

    def execute(self, plan: StepPlan) -> list[SampledToken | None]:
        if self.steps_until_hold is not None:
            self.steps_until_hold -= 1
            if self.steps_until_hold < 0:
                self.steps_until_hold = None
                self.open.clear()
        assert self.open.wait(PATIENCE_SECONDS)
        if self.broken:
            raise BrokenDeviceError("device lost")
        if self.memory_tokens is not None and plan.num_tokens > self.memory_tokens:
            raise DeviceOutOfMemoryError(plan.num_tokens * 1024)
        return super().execute(plan)

    def self_test(self) -> None:
        if self.broken:
            raise BrokenDeviceError("device lost")


class Running:
    """A started loop and all that came out of it."""

    def __init__(
        self, *, queue_limit: int = 100, stall_seconds: float = 60.0, runner: Gate | None = None
    ) -> None:
        self.bus = EventBus()
        self.events: Subscription = self.bus.subscribe()
        settings = EngineConfig(model=ModelConfig(), cache=CacheConfig(block_size=BLOCK_SIZE))
        introduction = Introduction(settings, self.bus)
        introduction.announce(ready=True)
        self.pool = BlockPool(16, BLOCK_SIZE, self.bus)
        config = SchedulerConfig(max_model_len=40, max_num_seqs=4)
        self.runner = runner or Gate()
        kv = KVManager(self.pool, self.bus, copier=self.runner)
        scheduler = Scheduler(config, kv, self.bus, frozenset())
        self.outputs: list[StepOutput] = []
        step = Step(scheduler, self.pool, self.runner, self.bus)
        introduction.attach(self.pool, step)
        self.loop = StepLoop(
            step,
            self.bus,
            self.outputs.extend,
            introduction,
            max_num_queued_reqs=queue_limit,
            stall_seconds=stall_seconds,
        )
        self._request_ids = itertools.count(1_000)
        self._sequence_ids = itertools.count()

    def submit(self, prompt: list[int], max_tokens: int) -> Sequence:
        """A call of one sequence; returns the sequence."""
        return self.call([prompt], max_tokens).sequences[0]

    def call(self, prompts: list[list[int]], max_tokens: int, n: int = 1) -> Request:
        """A call of n sequences for each prompt."""
        request_id = next(self._request_ids)
        sequences = [
            Sequence(
                sequence_id=next(self._sequence_ids),
                request_id=request_id,
                tokens=list(prompt),
                prompt_length=len(prompt),
                sampling=SamplingParams(max_tokens=max_tokens),
                hasher=PrefixHasher(chain_seed("m"), BLOCK_SIZE),
            )
            for prompt in prompts
            for _ in range(n)
        ]
        request = Request(
            request_id=request_id,
            sequences=sequences,
            arrival_ns=time.monotonic_ns(),
            choices_per_prompt=n,
        )
        self.loop.submit(request)
        return request

    def reason(self, sequence: Sequence) -> str | None:
        """The sequence's finish reason, once it has ended."""
        reasons = [o.finish_reason for o in self.outputs if o.sequence_id == sequence.sequence_id]
        return reasons[-1] if reasons else None

    def tokens(self, sequence: Sequence) -> list[int]:
        mine = [o.token for o in self.outputs if o.sequence_id == sequence.sequence_id]
        return [token.token_id for token in mine if token is not None]

    def all_events(self) -> list[EngineEvent]:
        events: list[EngineEvent] = []
        while (taken := self.events.take()) is not None:
            events += taken[0].events
        return events
