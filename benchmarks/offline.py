"""Runs our engine without HTTP: requests in, wall time until the last token."""

import threading
import time
from collections import abc
from dataclasses import dataclass

from kvscope_engine.block_pool import BlockPool
from kvscope_engine.config import CacheConfig, EngineConfig, ModelConfig
from kvscope_engine.hashing import PrefixHasher, chain_seed
from kvscope_engine.introduction import Introduction
from kvscope_engine.kv_manager import KVManager
from kvscope_engine.model.execution import leave_a_core
from kvscope_engine.model.loader import load_model
from kvscope_engine.model.runner import ModelRunner
from kvscope_engine.request import Request, SamplingParams, Sequence
from kvscope_engine.scheduler import Scheduler
from kvscope_engine.step import Step, StepOutput
from kvscope_engine.step_loop import StepLoop
from kvscope_events.bus import EventBus, NullBus
from kvscope_exporter.catalogue import COMPAT_SETS
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.recorder.recorder import Recorder
from kvscope_exporter.targets.exporter import Exporter, in_process
from tests.support.served import served_execution

BLOCK_SIZE = 16
MAX_MODEL_LEN = 1024


@dataclass
class OfflineEngine:
    """A started engine, with its exporter unless `observed` is off."""

    model: str
    num_blocks: int
    max_num_seqs: int
    observed: bool
    machine: Machine | None = None
    """Sources that the exporter reads besides the engine."""
    recorder: Recorder | None = None
    """Records what the exporter folds, when its `write` is called."""

    def __post_init__(self) -> None:
        self.bus = bus = EventBus() if self.observed else NullBus()
        config = EngineConfig(
            model=ModelConfig(model=self.model, served_model_name="bench"),
            cache=CacheConfig(block_size=BLOCK_SIZE),
            max_model_len=MAX_MODEL_LEN,
            max_num_seqs=self.max_num_seqs,
            max_num_queued_reqs=1_000_000,
        )
        introduction = Introduction(config, bus)
        loaded = load_model(config.model)
        leave_a_core()
        runner = ModelRunner(
            loaded.model,
            num_blocks=self.num_blocks,
            block_size=BLOCK_SIZE,
            execution=served_execution(loaded.model.device),
        )
        introduction.announce(ready=True)
        pool = BlockPool(self.num_blocks, BLOCK_SIZE, bus)
        limits = config.scheduler(MAX_MODEL_LEN)
        scheduler = Scheduler(limits, KVManager(pool, bus), bus, frozenset())
        step = Step(scheduler, pool, runner, bus)
        introduction.attach(pool, step)
        self._unfinished = 0
        self._done = threading.Event()
        self._next_id = 0
        self.loop = StepLoop(
            step,
            bus,
            self._sink,
            introduction,
            max_num_queued_reqs=limits.max_num_queued_reqs,
        )
        self.exporter: Exporter | None = None
        if isinstance(bus, EventBus):
            self.exporter = in_process(
                bus.subscribe(), compat=COMPAT_SETS, machine=self.machine, recorder=self.recorder
            )
            self.exporter.start()
        self.loop.start()

    def run(self, prompts: abc.Sequence[abc.Sequence[int]], output_tokens: int) -> float:
        """Generate for all prompts at once; seconds until the last one has ended."""
        self._unfinished = len(prompts)
        self._done.clear()
        start = time.perf_counter()
        for prompt in prompts:
            self.loop.submit(self._request(prompt, output_tokens))
        assert self._done.wait(600), "the engine did not finish in ten minutes"
        return time.perf_counter() - start

    def render(self) -> bytes:
        """A page, as a scrape gets it."""
        assert self.exporter is not None, "nobody observes this engine"
        return self.exporter.render()[0]

    def close(self) -> None:
        self.loop.shutdown(0)
        if self.exporter is not None:
            self.exporter.stop()

    def _request(self, prompt: abc.Sequence[int], output_tokens: int) -> Request:
        self._next_id += 1
        sequence = Sequence(
            sequence_id=self._next_id,
            request_id=self._next_id,
            tokens=list(prompt),
            prompt_length=len(prompt),
            sampling=SamplingParams(max_tokens=output_tokens, ignore_eos=True),
            hasher=PrefixHasher(chain_seed("bench"), BLOCK_SIZE),
        )
        return Request(
            request_id=self._next_id, sequences=[sequence], arrival_ns=time.monotonic_ns()
        )

    def _sink(self, outputs: list[StepOutput]) -> None:
        self._unfinished -= sum(output.finish_reason is not None for output in outputs)
        if not self._unfinished:
            self._done.set()
