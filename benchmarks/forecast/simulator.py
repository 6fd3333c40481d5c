"""Our engine on a simulated clock: real scheduler, manager and pool; a runner that only counts.

An hour of load takes seconds. Times between batches are simulated; those inside events are the
machine's, and nothing here reads them.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from benchmarks.forecast.clients import Call, Schedule, Source
from engine.block_pool import BlockPool
from engine.config import SchedulerConfig
from engine.hashing import PrefixHasher, chain_seed
from engine.kv_manager import KVManager
from engine.request import Request, SamplingParams, Sequence
from engine.scheduler import Scheduler
from engine.step import Step
from engine.step_plan import SampledToken, StepPlan
from kvscope_events.events import (
    Batch,
    DeviceMemorySampled,
    EngineEvent,
    SequenceFinished,
    StepCompleted,
)

SECOND = 10**9
STUCK_SECONDS = 0.5
"""An engine that has work and can run none of it looks again after this time."""
GOES_ON, STOPS = SampledToken(0), SampledToken(1)
_SEED = chain_seed("simulated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The engine and how fast it is."""

    num_blocks: int
    block_size: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 4096
    enable_prefix_caching: bool = False
    step_seconds: float = 0.08
    """Duration of a step that computes nothing."""
    sequence_seconds: float = 0.0004
    """More for each sequence that decodes."""
    token_seconds: float = 0.00004
    """More for each token of a prefill."""


class _SteppedBus:
    """A bus whose batches have the simulated time."""

    def __init__(self) -> None:
        self._events: list[EngineEvent] = []
        self.emit = self._events.append
        self._seq = 0

    def provide_snapshot(self, snapshot: Callable[[], list[EngineEvent]]) -> None:
        """Do nothing: no subscriber joins late."""

    def flush(self) -> None:
        """`take` ends a step."""

    def take(self, seconds: float) -> Batch:
        time_ns = round(seconds * SECOND)
        batch = Batch(self._seq, time_ns, self._events.copy(), time_ns, time_ns)
        self._events.clear()
        self._seq += 1
        return batch


class _CountingRunner:
    """Every sequence goes on until it has as many tokens as its call says."""

    def __init__(self) -> None:
        self.lengths: dict[int, int] = {}  # sequence -> prompt and output tokens

    def execute(self, plan: StepPlan) -> list[SampledToken | None]:
        lengths = self.lengths
        sampled: list[SampledToken | None] = []
        for row in plan.rows:
            tokens = len(row.sequence.tokens)
            if row.start + row.count < tokens:
                sampled.append(None)
            elif tokens + 1 < lengths[row.sequence.sequence_id]:
                sampled.append(GOES_ON)
            else:
                sampled.append(STOPS)
        return sampled

    def self_test(self) -> None:
        """There is nothing to test."""

    def drop_caches(self) -> None:
        """Nothing is held."""

    def sample_memory(self) -> DeviceMemorySampled:
        return DeviceMemorySampled(os.getpid(), None, 0, 0)


class Simulator:
    """Plays calls, in order of arrival, and yields a batch for every step."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._bus = _SteppedBus()
        self.pool = BlockPool(machine.num_blocks, machine.block_size, self._bus)
        manager = KVManager(
            self.pool, self._bus, enable_prefix_caching=machine.enable_prefix_caching
        )
        config = SchedulerConfig(
            max_model_len=machine.num_blocks * machine.block_size,
            max_num_seqs=machine.max_num_seqs,
            max_num_batched_tokens=machine.max_num_batched_tokens,
        )
        self.scheduler = Scheduler(config, manager, self._bus, frozenset({STOPS.token_id}))
        self._runner = _CountingRunner()
        self._step = Step(self.scheduler, self.pool, self._runner, self._bus)
        self._calls: dict[int, Call] = {}  # by the number of their request
        self._num_calls = 0

    def play(self, calls: Iterable[Call] | Source, seconds: float) -> Iterator[Batch]:
        """Batches up to a time; an idle engine yields none."""
        machine, requests = self._machine, self.scheduler.requests
        source = Schedule(calls) if isinstance(calls, Iterable) else calls
        now = 0.0
        yield self._bus.take(now)
        while now < seconds:
            was_idle = not len(requests)
            hung_up = source.give_up(now)
            for call in hung_up:
                self._abort(call)
            for call in source.take(now):
                self._add(call)
            if hung_up or (was_idle and len(requests)):
                yield self._bus.take(now)
            if self._step.run() is None:
                coming = max(now, min(source.next_at(), seconds))
                now = min(coming, now + STUCK_SECONDS) if len(requests) else coming
                continue
            batch = self._bus.take(0.0)
            done = batch.events[-1]
            assert type(done) is StepCompleted
            now += (
                machine.step_seconds
                + machine.sequence_seconds * len(done.emitted)
                + machine.token_seconds * done.prefill_tokens
            )
            time_ns = round(now * SECOND)
            yield Batch(batch.seq, time_ns, batch.events, time_ns, time_ns)
            for event in batch.events:
                if type(event) is SequenceFinished:
                    source.answered(self._calls.pop(event.sequence), now)

    def _abort(self, call: Call) -> None:
        number = next(number for number, known in self._calls.items() if known is call)
        request = self.scheduler.requests.get(number)
        assert request is not None
        self.scheduler.finish_request(request, "abort")
        del self._calls[number]

    def _add(self, call: Call) -> None:
        self._num_calls += 1
        number = self._num_calls
        self._calls[number] = call
        if isinstance(call.prompt, int):
            prompt = [0] * min(call.shared, call.prompt)
            prompt += [number] * (call.prompt - len(prompt))
        else:
            prompt = list(call.prompt)
        sequence = Sequence(
            sequence_id=number,
            request_id=number,
            tokens=prompt,
            prompt_length=len(prompt),
            sampling=SamplingParams(
                max_tokens=call.max_tokens, stop_token_ids=frozenset({STOPS.token_id})
            ),
            hasher=PrefixHasher(_SEED, self._machine.block_size),
        )
        self._runner.lengths[number] = len(prompt) + call.output
        self.scheduler.add(
            Request(request_id=number, sequences=[sequence], arrival_ns=time.monotonic_ns())
        )
