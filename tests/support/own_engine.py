"""Our engine with the demo model, in process and without a thread: the same steps each time."""

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from kvscope_engine.block_pool import BlockPool
from kvscope_engine.config import ModelConfig, SchedulerConfig
from kvscope_engine.hashing import PrefixHasher, chain_seed
from kvscope_engine.kv_manager import KVManager
from kvscope_engine.model.loader import LoadedModel, load_model
from kvscope_engine.model.runner import ModelRunner
from kvscope_engine.request import Request, SamplingParams
from kvscope_engine.request import Sequence as Continuation
from kvscope_engine.scheduler import Scheduler
from kvscope_engine.step import Step
from kvscope_events.bus import EventBus
from kvscope_events.events import Batch

BLOCK_SIZE = 16


@cache
def _demo() -> LoadedModel:
    return load_model(ModelConfig(model="demo"))


class OwnEngine:
    """A `Server` of tests.support.prefix_trees."""

    def __init__(self, num_blocks: int, max_model_len: int, max_num_seqs: int) -> None:
        self._bus = EventBus()
        self._events = self._bus.subscribe(queue_batches=1 << 16)
        self.pool = pool = BlockPool(num_blocks, BLOCK_SIZE, self._bus)
        config = SchedulerConfig(
            max_model_len=max_model_len, max_num_seqs=max_num_seqs, max_num_batched_tokens=256
        )
        runner = ModelRunner(_demo().model, num_blocks=num_blocks, block_size=BLOCK_SIZE)
        kv = KVManager(pool, self._bus, copier=runner.cache)
        scheduler = Scheduler(config, kv, self._bus, frozenset())
        self._step = Step(scheduler, pool, runner, self._bus)
        self._running: dict[int, Continuation] = {}
        self._bus.flush()

    def submit(self, request: int, prompt: Sequence[int], output_tokens: int) -> None:
        continuation = Continuation(
            request,
            request,
            list(prompt),
            len(prompt),
            SamplingParams(max_tokens=output_tokens, ignore_eos=True),
            PrefixHasher(chain_seed("demo"), BLOCK_SIZE),
        )
        self._running[request] = continuation
        call = Request(request_id=request, sequences=[continuation], arrival_ns=time.monotonic_ns())
        self._step.scheduler.add(call)

    def step(self) -> Iterable[tuple[int, Sequence[int]]]:
        outputs = self._step.run()
        assert outputs is not None, "a pool too small for one request"
        self._bus.flush()
        for output in outputs:
            if output.finish_reason is not None:
                ended = self._running.pop(output.sequence_id)
                yield ended.request_id, ended.tokens[ended.prompt_length :]

    def batches(self) -> Iterator[Batch]:
        """Batches since the last call."""
        while (taken := self._events.take()) is not None:
            batch, lost = taken
            assert not lost
            yield batch
