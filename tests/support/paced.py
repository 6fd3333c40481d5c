"""Our engine in simulated time, watched by an exporter: the same load gives the same figures.

Real are scheduler, manager, pool, step, events and everything of the exporter. Simulated are the
clock, by which a step takes a time that follows from its tokens, and what the model computes.
"""

import heapq
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kvscope_engine.block_pool import BlockPool
from kvscope_engine.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from kvscope_engine.hashing import PrefixHasher, chain_seed
from kvscope_engine.introduction import Introduction
from kvscope_engine.kv_manager import KVManager
from kvscope_engine.request import Request, SamplingParams, Sequence
from kvscope_engine.runner import Runner
from kvscope_engine.scheduler import Scheduler
from kvscope_engine.step import Step
from kvscope_engine.step_plan import SampledToken, StepPlan
from kvscope_events.bus import EventBus, Subscription
from kvscope_events.events import (
    Batch,
    DeviceMemorySampled,
    EngineEvent,
    FirstToken,
    RequestFinished,
    RequestPreempted,
    RequestResumed,
    RequestScheduled,
    SequenceFinished,
    StepCompleted,
)
from kvscope_events.tenants import tenant_digest
from kvscope_exporter.answers.advice import ADVICE, AdviceAnswer
from kvscope_exporter.answers.question import Question
from kvscope_exporter.clock import Clock
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.recorder.recorder import Recorder
from kvscope_exporter.targets.exporter import Exporter, in_process
from kvscope_exporter.targets.reply import Reply

SECOND = 1_000_000_000
_DRAIN_BATCHES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request of a load."""

    at: float
    """Seconds after the load began."""
    prompt: list[int]
    output_tokens: int
    samples: int = 1
    tenant: str = ""


class WordlessRunner:
    """Computes nothing; its tokens differ from sequence to sequence."""

    def execute(self, plan: StepPlan) -> list[SampledToken | None]:
        return [
            SampledToken((row.sequence.sequence_id * 31 + row.start + row.count) % 251)
            if row.samples
            else None
            for row in plan.rows
        ]

    def self_test(self) -> None:
        """There is nothing to test."""

    def drop_caches(self) -> None:
        """Nothing is held."""

    def sample_memory(self) -> DeviceMemorySampled:
        return DeviceMemorySampled(0, None, 0, 0)


@dataclass(kw_only=True)
class Paced:
    """An engine and its exporter."""

    num_blocks: int
    block_size: int = 16
    bytes_per_block: int = 2 << 20
    max_model_len: int = 4096
    max_num_seqs: int = 32
    max_num_batched_tokens: int = 1024
    step_ns: int = 10_000_000
    token_ns: int = 40_000
    runner: Runner = field(default_factory=WordlessRunner)
    machine: Machine = field(default_factory=Machine)
    terms: dict[str, int] = field(default_factory=dict)
    """Terms of the pool's size."""
    gpu_memory_utilization: float | None = None
    recorded_by: Callable[[Clock], Recorder] | None = None

    def __post_init__(self) -> None:
        self.now_ns = SECOND
        self.outcomes = {"prefill": 0, "recomputed": 0, "preempted": 0, "errors": 0}
        bus = EventBus()
        self._bus, self._own = bus, bus.subscribe(1 << 16)
        settings = EngineConfig(
            model=ModelConfig(),
            cache=CacheConfig(block_size=self.block_size),
            max_model_len=self.max_model_len,
        )
        introduction = Introduction(settings, bus)
        introduction.announce(
            ready=True,
            gpu_memory_utilization=self.gpu_memory_utilization,
            pid_space=None,
            pool_sized_by=None if self.terms else "num_gpu_blocks_override",
            settings={
                "max_num_seqs": self.max_num_seqs,
                "max_num_batched_tokens": self.max_num_batched_tokens,
            },
        )
        self.pool = BlockPool(
            self.num_blocks,
            self.block_size,
            bus,
            bytes_per_block=self.bytes_per_block,
            memory_terms=self.terms,
        )
        config = SchedulerConfig(
            max_model_len=self.max_model_len,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
        )
        scheduler = Scheduler(config, KVManager(self.pool, bus), bus, frozenset())
        self._scheduler = scheduler
        self._step = Step(scheduler, self.pool, self.runner, bus)
        introduction.attach(self.pool, self._step)
        self._subscription = Subscription(1 << 14)
        clock = Clock(monotonic_ns=lambda: self.now_ns, wall_ns=lambda: self.now_ns)
        self.recorder = None if self.recorded_by is None else self.recorded_by(clock)
        self.exporter: Exporter = in_process(
            self._subscription, machine=self.machine, clock=clock, recorder=self.recorder
        )
        self._numbers = itertools.count(1)
        self._arrivals: dict[int, int] = {}
        self._preempted: dict[int, int] = {}
        self._queues: dict[int, int] = {}
        self._took_ns = 0
        self._batch = Batch(0, 0, [])
        self._memory_due_ns = 0
        self._deliver(0)

    def play(self, calls: Iterable[Call], seconds: float) -> None:
        """Run the load for this many seconds of simulated time."""
        waiting = [(call.at, number, call) for number, call in enumerate(calls)]
        heapq.heapify(waiting)
        began_ns = self.now_ns
        end_ns = began_ns + int(seconds * SECOND)
        while self.now_ns < end_ns:
            self._look_up()
            while waiting and began_ns + waiting[0][0] * SECOND <= self.now_ns:
                self._submit(heapq.heappop(waiting)[2])
            if self.now_ns >= self._memory_due_ns:
                self._bus.emit(self.runner.sample_memory())
                self._memory_due_ns = self.now_ns + SECOND
            if self._step.run() is None:
                due = began_ns + int(waiting[0][0] * SECOND) + 1 if waiting else end_ns
                self.now_ns = min(max(due, self.now_ns + 1), self._memory_due_ns)
                self._deliver(0)
            else:
                self._deliver(self.step_ns)
        self._drain()

    def ask(self, question: Question[Any]) -> Reply:
        return self.exporter.answer(question)

    def advice(self) -> AdviceAnswer:
        """Advice for this engine, now. Fails if it is unknown."""
        (engine,) = self.ask(ADVICE).engines
        assert engine.unknown is None, engine.unknown
        assert isinstance(engine.answer, AdviceAnswer)
        return engine.answer

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples with that name and those labels."""
        return sum(
            sample.value
            for family in self.exporter.registry.collect()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def _look_up(self) -> None:
        """Called before every step, for what else happens in time."""

    def _submit(self, call: Call) -> None:
        number = next(self._numbers)
        self._arrivals[number] = self.now_ns
        sequences = [
            Sequence(
                sequence_id=number if not sample else next(self._numbers),
                request_id=number,
                tokens=list(call.prompt),
                prompt_length=len(call.prompt),
                sampling=SamplingParams(max_tokens=call.output_tokens),
                hasher=PrefixHasher(chain_seed("paced"), self.block_size),
            )
            for sample in range(call.samples)
        ]
        request = Request(
            request_id=number,
            sequences=sequences,
            arrival_ns=self.now_ns,
            tenant=tenant_digest(call.tenant) if call.tenant else "",
        )
        self._scheduler.add(request)

    def _deliver(self, step_ns: int) -> None:
        """Hand the exporter what was emitted, with the simulated time in place of the real one."""
        self._bus.flush()
        while (taken := self._own.take()) is not None:
            batch = taken[0]
            self._batch, self._took_ns = batch, 0
            events = [self._timed(event, step_ns) for event in batch.events]
            now_ns = self.now_ns
            self._subscription.put(Batch(batch.seq, now_ns, events, now_ns, now_ns))
        if self._subscription.queued >= _DRAIN_BATCHES:
            self._drain()

    def _timed(self, event: EngineEvent, step_ns: int) -> Any:
        """The first event of a step's end moves the clock to it."""
        ends = isinstance(event, FirstToken | StepCompleted)
        if isinstance(event, SequenceFinished | RequestFinished):
            ends = event.reason != "abort"
        if ends and not self._took_ns:
            for step in self._batch.events:
                if isinstance(step, StepCompleted):
                    tokens = step.prefill_tokens + step.decode_tokens
                    self._took_ns = step_ns + tokens * self.token_ns
            self.now_ns += self._took_ns
        if isinstance(event, FirstToken):
            elapsed_ns = self.now_ns - self._arrivals[event.request]
            return msgspec.structs.replace(event, elapsed_ns=elapsed_ns)
        if isinstance(event, RequestScheduled):
            queue_ns = self.now_ns - self._arrivals[event.request]
            self._queues[event.request] = queue_ns
            return msgspec.structs.replace(event, queue_ns=queue_ns)
        if isinstance(event, SequenceFinished | RequestFinished):
            return self._ended(event)
        if isinstance(event, RequestPreempted):
            self._preempted[event.sequence] = self.now_ns
        if isinstance(event, RequestResumed):
            stalled_ns = self.now_ns - self._preempted.pop(event.sequence)
            return msgspec.structs.replace(event, stalled_ns=stalled_ns)
        if isinstance(event, StepCompleted):
            return msgspec.structs.replace(event, duration_ns=self._took_ns)
        return event

    def _ended(self, event: SequenceFinished | RequestFinished) -> Any:
        elapsed_ns = self.now_ns - self._arrivals[event.request]
        queue_ns = self._queues.get(event.request)
        if isinstance(event, RequestFinished):
            return msgspec.structs.replace(event, elapsed_ns=elapsed_ns, queue_ns=queue_ns)
        return msgspec.structs.replace(
            event, elapsed_ns=elapsed_ns, queue_ns=queue_ns, prefill_ns=None, decode_ns=None
        )

    def _drain(self) -> None:
        (target,) = self.exporter.targets
        with target.pipeline.settled():
            pass
