"""From settings to a running engine: model, pool, scheduler, step loop and the app's parts."""

import time
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from kvscope_engine.block_pool import BlockPool
from kvscope_engine.config import EngineConfig, SchedulerConfig
from kvscope_engine.introduction import Introduction
from kvscope_engine.kv_manager import KVManager
from kvscope_engine.model.attention.choice import choose_attention
from kvscope_engine.model.device_memory import memory_of
from kvscope_engine.model.execution import Execution, execution_of, leave_a_core, stored_dtype
from kvscope_engine.model.kv_cache import kv_layout
from kvscope_engine.model.limits import max_model_len
from kvscope_engine.model.loader import LoadedModel, device_of, load_model
from kvscope_engine.model.memory_report import buffer_bytes, parameter_bytes
from kvscope_engine.model.profile import activation_peak, graph_bytes
from kvscope_engine.model.runner import ModelRunner
from kvscope_engine.model.tokenizer import Tokenizer
from kvscope_engine.model.torch_errors import device_out_of_memory
from kvscope_engine.out_of_memory import DeviceOutOfMemoryError
from kvscope_engine.scheduler import Scheduler
from kvscope_engine.server.dispatch import Dispatcher
from kvscope_engine.server.requests import ServedModel
from kvscope_engine.sizing import (
    Footprint,
    MainMemory,
    MeasuredDevice,
    PoolSize,
    PoolSizeError,
    PoolSizer,
)
from kvscope_engine.sizing.units import format_bytes
from kvscope_engine.step import Step
from kvscope_engine.step_loop import StepLoop
from kvscope_engine.swap.start import num_swap_blocks, swap_manager, swap_space
from kvscope_events.bus import Bus
from kvscope_events.events import Hello


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A built engine. `loop.start()` runs it, `loop.shutdown()` ends it."""

    loop: StepLoop
    dispatcher: Dispatcher
    tokenizer: Tokenizer
    served: ServedModel
    scheduler: SchedulerConfig
    pool_size: PoolSize
    introduction: Introduction

    @property
    def hello(self) -> Hello:
        """The current Hello of this engine's events."""
        return self.introduction.hello


def build_engine(
    config: EngineConfig,
    bus: Bus,
    memory: MeasuredDevice | MainMemory | None = None,
    introduction: Introduction | None = None,
) -> Engine:
    """Load the model and put the engine together; nothing runs yet.

    Subscribers get a Hello before the model loads and another, ready, before the pool's events.

    memory: a meter instead of the device's own, for tests. introduction: one that has already sent
    its Hello; importing this module takes seconds.

    Raises CheckpointError, PoolSizeError, or ValueError for settings that contradict each other or
    the checkpoint.
    """
    if config.model.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: this torch sees no CUDA device; leave the flag out")
    if introduction is None:
        introduction = Introduction(config, bus)
        bus.flush()
    memory = memory or memory_of(device_of(config.model))
    sizer = PoolSizer(config.cache, memory)
    attention = choose_attention(
        config.model.attention_backend,
        device_of(config.model),
        fp8=stored_dtype(config) is not None,
    )
    loaded = load_model(config.model, attention)
    loaded.tokenizer.check_chat_template()
    if loaded.model.device.type == "cpu":
        leave_a_core()
    model, block_size = loaded.model, config.cache.block_size
    scheduler_config = config.scheduler(max_model_len(model.config))
    execution = execution_of(config, scheduler_config, attention)
    size, execution = _size_pool(sizer, loaded, scheduler_config, block_size, memory, execution)
    host = memory if isinstance(memory, MainMemory) else None
    pool_bytes = size.num_blocks * size.bytes_per_block
    swap_blocks = num_swap_blocks(
        config.swap, size.bytes_per_block, host or MainMemory(), pool_bytes if host else 0
    )
    runner = _runner(model, size, block_size, config.model.seed, execution)
    space = swap_space(runner.cache, swap_blocks) if swap_blocks else None
    introduction.announce(
        ready=True,
        max_model_len=scheduler_config.max_model_len,
        cache_dtype=str(runner.layout.dtype).removeprefix("torch."),
        gpu_memory_utilization=config.cache.gpu_memory_utilization if size.measured else None,
        pool_sized_by="gpu_memory_utilization" if size.measured else config.cache.size_option,
        settings={
            "max_num_seqs": scheduler_config.max_num_seqs,
            "max_num_batched_tokens": scheduler_config.max_num_batched_tokens,
        },
    )
    pool = BlockPool(
        size.num_blocks,
        block_size,
        bus,
        bytes_per_block=size.bytes_per_block,
        memory_terms={str(term): amount for term, amount in size.terms.items()},
        swap_blocks=swap_blocks,
    )
    swap = None if space is None else swap_manager(config.swap, pool, space, bus)
    kv = KVManager(
        pool,
        bus,
        enable_prefix_caching=config.cache.enable_prefix_caching,
        copier=runner.cache,
    )
    scheduler = Scheduler(scheduler_config, kv, bus, loaded.tokenizer.eos_token_ids, swap)
    step = Step(scheduler, pool, runner, bus)
    introduction.attach(pool, step)
    dispatcher = Dispatcher()
    loop = StepLoop(
        step,
        bus,
        dispatcher.sink,
        introduction,
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
        introduction=introduction,
    )


def _runner(
    model: PreTrainedModel, size: PoolSize, block_size: int, seed: int, execution: Execution
) -> ModelRunner:
    """Allocates the pool. Raises PoolSizeError if others took its memory since it was sized."""
    try:
        with device_out_of_memory():
            runner = ModelRunner(
                model,
                num_blocks=size.num_blocks,
                block_size=block_size,
                seed=seed,
                profiled_peak=size.activation_peak,
                execution=execution,
            )
    except DeviceOutOfMemoryError:
        wanted = format_bytes(size.num_blocks * size.bytes_per_block)
        raise PoolSizeError(
            f"no memory for a pool of {size.num_blocks} blocks, {wanted}: it was free when the "
            "pool was sized; find what took it, or make the pool smaller "
            "(--kv-cache-memory-bytes)"
        ) from None
    if execution.static is not None and model.device.type == "cuda":
        runner.capture_graphs()
    return runner


def _size_pool(
    sizer: PoolSizer,
    loaded: LoadedModel,
    scheduler: SchedulerConfig,
    block_size: int,
    memory: MeasuredDevice | MainMemory,
    execution: Execution,
) -> tuple[PoolSize, Execution]:
    """The size, and the execution without features that the model turned out not to support."""
    model = loaded.model
    layout = kv_layout(model.config, block_size, model.dtype, execution.stored)

    def measure(pool_bytes: int) -> int:
        assert not isinstance(memory, MainMemory), "a CPU's pool is not measured"
        return activation_peak(
            model,
            memory,
            scheduler,
            block_size=block_size,
            pool_tokens=pool_bytes // layout.bytes_per_token,
            execution=execution.without_static(),
        )

    def measure_graphs() -> int:
        nonlocal execution
        assert not isinstance(memory, MainMemory), "a CPU has no graphs"
        if execution.static is None or model.device.type != "cuda":
            return 0
        taken = graph_bytes(model, memory, execution, block_size=block_size)
        if taken is None:
            execution = execution.without_static()
        return taken or 0

    footprint = Footprint(
        weights=parameter_bytes(model),
        buffers=buffer_bytes(model),
        bytes_per_block=layout.bytes_per_block,
    )
    return sizer.size(scheduler, footprint, measure, measure_graphs), execution
