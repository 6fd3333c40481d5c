"""From settings to a running engine: model, pool, scheduler, step loop and the app's parts."""

import time
from dataclasses import dataclass

import torch

from engine.block_pool import BlockPool
from engine.config import (
    DEFAULT_MAX_NUM_BATCHED_TOKENS,
    DEFAULT_MAX_NUM_SEQS,
    CacheConfig,
    ModelConfig,
    SchedulerConfig,
    SchedulingPolicy,
)
from engine.kv_manager import KVManager
from engine.model.device_memory import memory_of
from engine.model.kv_cache import kv_layout
from engine.model.limits import max_model_len
from engine.model.loader import LoadedModel, device_of, load_model
from engine.model.profile import activation_peak
from engine.model.runner import ModelRunner
from engine.model.threads import leave_a_core
from engine.model.tokenizer import Tokenizer
from engine.scheduler import Scheduler
from engine.server.dispatch import Dispatcher
from engine.server.requests import ServedModel
from engine.sizing import DeviceMemory, Footprint, HostMemory, PoolSize, PoolSizer
from engine.step_loop import StepLoop
from kvscope_events.bus import Bus, EventBus


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What the operator sets; the rest comes from the checkpoint."""

    model: ModelConfig
    cache: CacheConfig
    max_model_len: int | None = None
    """None: the checkpoint's."""
    max_num_seqs: int = DEFAULT_MAX_NUM_SEQS
    max_num_batched_tokens: int | None = None
    """None: 2048, and without chunked prefill at least max_model_len."""
    enable_chunked_prefill: bool = True
    policy: SchedulingPolicy = "fcfs"
    max_num_queued_reqs: int = 1024
    stall_seconds: float = 60.0
    """A step that takes longer makes /health say so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A built engine. `loop.start()` runs it, `loop.shutdown()` ends it."""

    loop: StepLoop
    dispatcher: Dispatcher
    tokenizer: Tokenizer
    served: ServedModel
    scheduler: SchedulerConfig
    pool_size: PoolSize
    kv_dtype: str


def build_engine(
    config: EngineConfig, bus: Bus, memory: DeviceMemory | HostMemory | None = None
) -> Engine:
    """Load the model and put the engine together; nothing runs yet.

    memory: measures in place of the device's own figures, for tests.

    Raises CheckpointError, PoolSizeError, or ValueError for settings that contradict each other or
    the checkpoint.
    """
    if config.model.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: this torch sees no CUDA device; leave the flag out")
    memory = memory or memory_of(device_of(config.model))
    sizer = PoolSizer(config.cache, memory)
    loaded = load_model(config.model)
    if loaded.model.device.type == "cpu":
        leave_a_core()
    model, block_size = loaded.model, config.cache.block_size
    scheduler_config = _scheduler_config(config, max_model_len(model.config))
    size = _size_pool(sizer, loaded, scheduler_config, block_size, memory)
    runner = ModelRunner(
        model,
        num_blocks=size.num_blocks,
        block_size=block_size,
        seed=config.model.seed,
        profiled_peak=size.activation_peak,
    )
    pool = BlockPool(
        size.num_blocks,
        block_size,
        bus,
        bytes_per_block=size.bytes_per_block,
        memory_terms={str(term): amount for term, amount in size.terms.items()},
    )
    if isinstance(bus, EventBus):
        bus.provide_snapshot(pool.snapshot)
    kv = KVManager(pool, bus, enable_prefix_caching=config.cache.enable_prefix_caching)
    scheduler = Scheduler(scheduler_config, kv, bus, loaded.tokenizer.eos_token_ids)
    dispatcher = Dispatcher()
    loop = StepLoop(
        scheduler,
        pool,
        runner,
        bus,
        dispatcher.sink,
        max_num_queued_reqs=config.max_num_queued_reqs,
        stall_seconds=config.stall_seconds,
    )
    dispatcher.attach(loop)
    served = ServedModel(
        name=config.model.name,
        vocab_size=runner.vocab_size,
        block_size=block_size,
        created=int(time.time()),
    )
    return Engine(
        loop=loop,
        dispatcher=dispatcher,
        tokenizer=loaded.tokenizer,
        served=served,
        scheduler=scheduler_config,
        pool_size=size,
        kv_dtype=str(model.dtype).removeprefix("torch."),
    )


def _size_pool(
    sizer: PoolSizer,
    loaded: LoadedModel,
    scheduler: SchedulerConfig,
    block_size: int,
    memory: DeviceMemory | HostMemory,
) -> PoolSize:
    layout = kv_layout(loaded.model.config, block_size, loaded.model.dtype)

    def measure(pool_bytes: int) -> int:
        assert not isinstance(memory, HostMemory), "a CPU's pool is not measured"
        return activation_peak(
            loaded.model,
            memory,
            scheduler,
            block_size=block_size,
            pool_tokens=pool_bytes // layout.bytes_per_token,
        )

    footprint = Footprint(
        weights=loaded.parameter_bytes,
        buffers=loaded.buffer_bytes,
        bytes_per_block=layout.bytes_per_block,
    )
    return sizer.size(scheduler, footprint, measure)


def _scheduler_config(config: EngineConfig, model_limit: int) -> SchedulerConfig:
    length = config.max_model_len or model_limit
    if length > model_limit:
        raise ValueError(
            f"--max-model-len {length} is over the checkpoint's {model_limit} positions"
        )
    budget = config.max_num_batched_tokens
    if budget is None:
        budget = max(DEFAULT_MAX_NUM_BATCHED_TOKENS, config.max_num_seqs)
        if not config.enable_chunked_prefill:
            budget = max(budget, length)
    return SchedulerConfig(
        max_model_len=length,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=budget,
        enable_chunked_prefill=config.enable_chunked_prefill,
        policy=config.policy,
        max_num_queued_reqs=config.max_num_queued_reqs,
    )
