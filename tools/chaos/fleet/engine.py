"""Our engine on a server of eight simulated H200, all in simulated time, under one load.

Real are scheduler, pool, cache, events and every family on the page; the driver is NVML's double,
read by our own poller. Made up are the clock and what a step takes of it.
"""

import heapq
import itertools
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import kvscope_engine.request_book
import kvscope_engine.scheduler
import kvscope_engine.step
from kvscope_engine.step_plan import SampledToken, StepPlan
from kvscope_events.events import (
    DeviceMemorySampled,
    EngineEvent,
    RequestFinished,
    RequestRejected,
)
from kvscope_exporter.machine.gpu import Reading
from kvscope_exporter.machine.host_memory import HostMemory
from kvscope_exporter.machine.machine import Machine
from tests.fakes.nvml import GIB
from tests.fakes.nvml.states import UUID
from tests.gpu.scrapes import torch_sample
from tests.support.paced import SECOND, Call, Paced, WordlessRunner

GPUS = 8
STEP_NS, TOKEN_NS = 22_000_000, 100_000
"""Times of a large model over eight cards: forty tokens a second, ten thousand prompt tokens."""
SYSTEM_PROMPTS, SYSTEM_TOKENS = 12, 320
_CLOCKED: tuple[Any, ...] = (
    kvscope_engine.scheduler,
    kvscope_engine.step,
    kvscope_engine.request_book,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load of one server, and its capacity."""

    calls_per_second: float
    blocks: int = 1600
    queue: int = 64
    """Calls that may wait; others are refused."""
    again_seconds: float | None = None
    """After which a refused call comes again, as impatient clients have it; None: never."""
    clients: int = 0
    """Closed loop: each asks again when it is answered, instead of a number of calls a second."""
    slower: float = 1.0
    """Times as long as usual that a step takes."""


class _Runner(WordlessRunner):
    """Steps take simulated time; each second another card says what torch has on it."""

    def __init__(self) -> None:
        self.engine: Clocked | None = None
        self._cards = itertools.cycle(range(GPUS))

    def execute(self, plan: StepPlan) -> list[SampledToken | None]:
        assert self.engine is not None
        took_ns = STEP_NS + plan.num_tokens * TOKEN_NS
        self.engine.now_ns += int(took_ns * self.engine.load.slower)
        return super().execute(plan)

    def sample_memory(self) -> DeviceMemorySampled:
        return torch_sample(pid=os.getpid(), device_uuid=UUID.format(next(self._cards)))


@dataclass(kw_only=True)
class Clocked(Paced):
    """An engine whose every time is simulated, latencies of requests included."""

    load: Load
    cards: Reading
    max_num_batched_tokens: int = 512
    due: list[tuple[int, int, Call]] = field(default_factory=list)
    later: Iterator[Call] = field(default_factory=lambda: iter(()))
    """The next calls of the clients of a closed loop."""

    def __post_init__(self) -> None:
        self.machine = machine(self.cards)
        super().__post_init__()
        assert isinstance(self.runner, _Runner)
        self.runner.engine = self
        self._order = itertools.count()

    def ask_later(self, call: Call, at_ns: int) -> None:
        heapq.heappush(self.due, (at_ns, next(self._order), call))

    def run_until(self, end_ns: int) -> None:
        """Serve what is due by then."""
        while self.now_ns < end_ns:
            while self.due and self.due[0][0] <= self.now_ns:
                self._submit(heapq.heappop(self.due)[2])
            if self.now_ns >= self._memory_due_ns:
                self._bus.emit(self.runner.sample_memory())
                self._memory_due_ns = self.now_ns + SECOND
            if self._step.run() is None:
                soon = self.due[0][0] if self.due else end_ns
                self.now_ns = min(max(soon, self.now_ns + 1), self._memory_due_ns)
            self._deliver(0)
        self._drain()

    def _submit(self, call: Call) -> None:
        if self._scheduler.num_waiting < self.load.queue:
            super()._submit(call)
            return
        self._bus.emit(RequestRejected("queue_full"))
        if self.load.again_seconds is not None:
            self.ask_later(call, self.now_ns + int(self.load.again_seconds * SECOND))

    def _timed(self, event: EngineEvent, step_ns: int) -> Any:
        if isinstance(event, RequestFinished):
            for call in itertools.islice(self.later, 1):
                self.ask_later(call, self.now_ns)
        return event  # its times are simulated already


def machine(cards: Reading) -> Machine:
    """With these cards, and room on its host."""
    return Machine(gpu=_Same(cards), host=_roomy)


@contextmanager
def serving(load: Load, cards: Reading, seed: int) -> Iterator[Clocked]:
    """An engine that has served nothing yet; calls for an hour are due."""
    runner = _Runner()
    served = Clocked(num_blocks=load.blocks, runner=runner, load=load, cards=cards)
    calls = _calls(load, seed)
    if load.clients:
        served.later = calls
        for call in itertools.islice(calls, load.clients):
            served.ask_later(call, served.now_ns)
    for call in () if load.clients else calls:
        served.ask_later(call, served.now_ns + int(call.at * SECOND))
    clock = SimpleNamespace(monotonic_ns=lambda: served.now_ns)
    patches = [patch.object(module, "time", clock) for module in _CLOCKED]
    for one in patches:
        one.start()
    served.exporter.start()
    try:
        yield served
    finally:
        served.exporter.stop()
        for one in patches:
            one.stop()


def _calls(load: Load, seed: int) -> Iterator[Call]:
    """Chats behind a few system prompts: log-normal lengths, at random moments."""
    draw = random.Random(f"{seed}/fleet")
    systems = [_words(draw, SYSTEM_TOKENS) for _ in range(SYSTEM_PROMPTS)]
    at = 0.0
    while at < 3600:
        at += draw.expovariate(load.calls_per_second)
        prompt = draw.choice(systems) + _words(draw, draw.randint(40, 600))
        output = int(min(800, max(4, draw.lognormvariate(4.9, 0.7))))
        yield Call(at=at, prompt=prompt, output_tokens=output)


def _words(draw: random.Random, count: int) -> list[int]:
    return list(draw.randbytes(count))


@dataclass(frozen=True)
class _Same:
    """NVML's answer of once, for every page."""

    reading: Reading

    def read(self) -> Reading:
        return self.reading


def _roomy(_pid: int) -> HostMemory:
    used = 90 * GIB
    return HostMemory(resident=80 * GIB, limit=256 * GIB, usage=used, unreclaimable=used)
