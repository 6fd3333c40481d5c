"""Our engine on a simulated clock: real scheduler, manager and pool; a runner that only counts.

An hour of load takes seconds. The engine is slow, ten tokens a second for each sequence: what
matters is how long requests live compared with the horizons.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from kvscope_engine.block_pool import BlockPool
from kvscope_engine.config import SchedulerConfig
from kvscope_engine.hashing import PrefixHasher, chain_seed
from kvscope_engine.kv_manager import KVManager
from kvscope_engine.request import Request, SamplingParams, Sequence
from kvscope_engine.scheduler import Scheduler
from kvscope_engine.step import Step
from kvscope_engine.step_plan import SampledToken, StepPlan
from kvscope_events.events import Batch, DeviceMemorySampled, EngineEvent, StepCompleted

SECOND = 10**9
_BLOCK_SIZE = 16
_STEP_SECONDS, _DECODE_SECONDS, _PREFILL_TOKEN_SECONDS = 0.08, 0.0004, 0.00004
"""Duration of a step that computes nothing; more for each sequence and each token of a prefill."""
_STUCK_SECONDS = 0.5
"""An engine that has work and can run none of it looks again after this time."""
_GOES_ON, _STOPS = SampledToken(0), SampledToken(1)
_SEED = chain_seed("simulated")


class Call(NamedTuple):
    """One request of a load, of one sequence; lengths in tokens."""

    at: float
    """Seconds since the load began."""
    prompt: int
    output: int
    max_tokens: int


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

    def take(self, later: Callable[[EngineEvent], float]) -> Batch:
        """Everything since the last one; later: the time at its end, by its last event."""
        events = self._events.copy()
        time_ns = round(later(events[-1]) * SECOND)
        self._events.clear()
        self._seq += 1
        return Batch(self._seq - 1, time_ns, events, time_ns, time_ns)


class _CountingRunner:
    """Every sequence goes on until it has as many tokens as its call says."""

    def __init__(self) -> None:
        self.lengths: dict[int, int] = {}  # sequence -> prompt and output tokens

    def execute(self, plan: StepPlan) -> list[SampledToken | None]:
        sampled: list[SampledToken | None] = []
        for row in plan.rows:
            tokens = len(row.sequence.tokens)
            if row.start + row.count < tokens:
                sampled.append(None)
            else:
                is_last = tokens + 1 >= self.lengths[row.sequence.sequence_id]
                sampled.append(_STOPS if is_last else _GOES_ON)
        return sampled

    def self_test(self) -> None:
        """There is nothing to test."""

    def drop_caches(self) -> None:
        """Nothing is held."""

    def sample_memory(self) -> DeviceMemorySampled:
        return DeviceMemorySampled(os.getpid(), None, 0, 0)


class Simulator:
    """Plays calls, in order of arrival, and yields a batch for every step."""

    def __init__(self, num_blocks: int, max_num_seqs: int = 256) -> None:
        self._bus = _SteppedBus()
        self._pool = BlockPool(num_blocks, _BLOCK_SIZE, self._bus)
        manager = KVManager(self._pool, self._bus, enable_prefix_caching=False)
        config = SchedulerConfig(
            max_model_len=num_blocks * _BLOCK_SIZE,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=4096,
        )
        self._scheduler = Scheduler(config, manager, self._bus, frozenset({_STOPS.token_id}))
        self._runner = _CountingRunner()

    def play(self, calls: Iterable[Call], seconds: float) -> Iterator[Batch]:
        """Batches up to a time; an idle engine yields none."""
        step = Step(self._scheduler, self._pool, self._runner, self._bus)
        coming = deque(calls)
        now = 0.0

        def later(event: EngineEvent) -> float:
            if type(event) is not StepCompleted:
                return now
            duration = _STEP_SECONDS + _DECODE_SECONDS * len(event.emitted)
            return now + duration + _PREFILL_TOKEN_SECONDS * event.prefill_tokens

        yield self._bus.take(later)
        while now < seconds:
            was_idle = not len(self._scheduler.requests)
            while coming and coming[0].at <= now:
                self._add(coming.popleft())
            is_idle = not len(self._scheduler.requests)
            if was_idle and not is_idle:
                yield self._bus.take(later)
            if step.run() is not None:
                batch = self._bus.take(later)
                now = batch.time_ns / SECOND
                yield batch
            else:
                next_at = max(now, min(coming[0].at if coming else seconds, seconds))
                now = next_at if is_idle else min(next_at, now + _STUCK_SECONDS)

    def _add(self, call: Call) -> None:
        number = len(self._runner.lengths) + 1
        sequence = Sequence(
            sequence_id=number,
            request_id=number,
            tokens=[number] * call.prompt,
            prompt_length=call.prompt,
            sampling=SamplingParams(
                max_tokens=call.max_tokens, stop_token_ids=frozenset({_STOPS.token_id})
            ),
            hasher=PrefixHasher(_SEED, _BLOCK_SIZE),
        )
        self._runner.lengths[number] = call.prompt + call.output
        self._scheduler.add(
            Request(request_id=number, sequences=[sequence], arrival_ns=time.monotonic_ns())
        )
