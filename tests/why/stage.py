"""An engine in simulated time with clients that lose patience, a GPU and its neighbours."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from random import Random

from kvscope_engine.out_of_memory import DeviceOutOfMemoryError
from kvscope_engine.step_plan import SampledToken, StepPlan
from kvscope_events.events import DeviceMemorySampled, RequestRejected
from kvscope_events.vocabulary import RejectReason
from kvscope_exporter.answers.diagnosis.question import WHY, WhyAnswer
from kvscope_exporter.machine.gpu import (
    DeviceSample,
    GpuHistory,
    GpuSample,
    Identity,
    Memory,
    ProcessList,
    ProcessUse,
    Reading,
    Sensors,
)
from kvscope_exporter.machine.machine import Machine
from tests.support.paced import SECOND, Call, Paced, WordlessRunner

UUID = "GPU-0"
GIB = 1 << 30
TOTAL = 24 * GIB
WEIGHTS = 15 * GIB
BYTES_PER_TOKEN = 3 << 20
"""Activations that a step takes for each of its tokens."""
NEIGHBOUR_PID = 4242


class Gpu(WordlessRunner):
    """The card, its driver, and the runner whose steps need room on it."""

    def __init__(self, pool_bytes: int) -> None:
        self.pool_bytes = pool_bytes
        self.neighbour_bytes = 0
        self.slowed = 0
        self.history = GpuHistory()
        self.now_ns = 0
        self._ooms = 0

    def execute(self, plan: StepPlan) -> list[SampledToken | None]:
        wanted = plan.num_tokens * BYTES_PER_TOKEN
        if wanted > self.free:
            self._ooms += 1
            raise DeviceOutOfMemoryError(wanted)
        return super().execute(plan)

    @property
    def free(self) -> int:
        return TOTAL - WEIGHTS - self.pool_bytes - self.neighbour_bytes

    def sample_memory(self) -> DeviceMemorySampled:
        return DeviceMemorySampled(
            os.getpid(), UUID, WEIGHTS, self.pool_bytes, alloc_retries=self._ooms, ooms=self._ooms
        )

    def note(self, now_ns: int) -> None:
        self.now_ns = now_ns
        self.history.note(self._sample(now_ns))

    def read(self) -> Reading:
        sample = self._sample(self.now_ns)
        return Reading(sample=sample, last=sample, errors={}, xids={})

    def _sample(self, now_ns: int) -> GpuSample:
        own = ProcessUse(os.getpid(), WEIGHTS + self.pool_bytes)
        other = ProcessUse(NEIGHBOUR_PID, self.neighbour_bytes)
        memory = Memory(total=TOTAL, free=self.free, used=TOTAL - self.free, reserved=0)
        device = DeviceSample(
            identity=Identity(index=0, uuid=UUID),
            up=True,
            memory=memory,
            processes=ProcessList((own, other) if self.neighbour_bytes else (own,), memory, now_ns),
            sensors=Sensors(clocks_events=self.slowed),
        )
        return GpuSample(
            taken_ns=now_ns,
            duration_seconds=0.0,
            driver_version=None,
            cuda_version=None,
            devices=(device,),
        )


@dataclass(kw_only=True)
class Stage(Paced):
    """patience: seconds after which a client that has no token gives up, and asks again. agents:
    clients that ask again as soon as they have an answer; `errands` are what they ask."""

    num_blocks: int = 700
    step_ns: int = 40_000_000
    token_ns: int = 100_000
    patience: float | None = None
    asks_again: bool = False
    agents: int = 0
    errands: Iterator[Call] = field(default_factory=lambda: iter(()))
    _asked: set[int] = field(default_factory=set)
    _impatient: dict[int, tuple[int, Call]] = field(default_factory=dict)
    _gpu_due_ns: int = 0

    def __post_init__(self) -> None:
        self.gpu = Gpu(self.num_blocks * self.bytes_per_block)
        self.runner = self.gpu
        self.machine = Machine(gpu=self.gpu, gpu_history=self.gpu.history)
        super().__post_init__()

    def why(self) -> WhyAnswer:
        (engine,) = self.ask(WHY).engines
        assert engine.unknown is None, engine.unknown
        assert isinstance(engine.answer, WhyAnswer)
        return engine.answer

    def hang(self, calls: Iterable[Call], seconds: float) -> None:
        """Requests arrive, and no step runs any more."""
        for call in calls:
            self._submit(call)
        self._deliver(0)
        for _ in range(int(seconds)):
            self.now_ns += SECOND
            self._look_up()
        self._drain()

    def refuse(self, reason: RejectReason) -> None:
        """A request is refused before it reaches the scheduler."""
        self._bus.emit(RequestRejected(reason))

    def _submit(self, call: Call) -> None:
        super()._submit(call)
        if self.patience is not None:
            number = max(self._arrivals)
            self._impatient[number] = self.now_ns + int(self.patience * SECOND), call

    def _look_up(self) -> None:
        if self.now_ns >= self._gpu_due_ns:
            self.gpu.note(self.now_ns)
            self._gpu_due_ns = self.now_ns + SECOND
            if self.recorder is not None:
                self.exporter.render()
                self.recorder.write()
        requests = self._scheduler.requests
        self._asked = {each for each in self._asked if requests.get(each) is not None}
        while len(self._asked) < self.agents:
            self._submit(next(self.errands))
            self._asked.add(max(self._arrivals))
        if self.patience is None:
            return
        for number, (until_ns, call) in list(self._impatient.items()):
            request = self._scheduler.requests.get(number)
            if request is None or request.sequences[0].num_output_tokens:
                del self._impatient[number]
            elif self.now_ns >= until_ns:
                del self._impatient[number]
                self._scheduler.finish_request(request, "abort")
                if self.asks_again:
                    self._submit(call)


def chat(
    seed: int,
    seconds: float,
    *,
    rate: float = 1.5,
    template: int = 12,
    version: int = 0,
    question: tuple[int, int] = (4, 12),
    answer: tuple[int, int] = (30, 90),
    users: int = 0,
) -> Iterator[Call]:
    """Requests that begin with one of a few templates. Lengths are in blocks, answers in tokens.

    users: conversations that come again with the same beginning; 0: each comes once.
    """
    rng, at = Random(seed), 0.0
    while (at := at + rng.expovariate(rate)) < seconds:
        prompt = [1000 * version + block + 1 for block in range(template) for _ in range(16)]
        user = rng.randrange(users) if users else rng.randrange(1 << 30)
        own = Random(user)
        prompt += [own.randrange(50, 250) for _ in range(16 * own.randint(*question))]
        yield Call(at=at, prompt=prompt, output_tokens=rng.randint(*answer))


def play(stage: Stage, calls: Iterable[Call], seconds: float) -> WhyAnswer:
    stage.play(calls, seconds)
    return stage.why()
