"""`kvscope plan`: what fits on a GPU, calculated from a checkpoint's config.json; loads nothing."""

import json
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import typer
from rich.console import Console

from engine.config import DEFAULT_MAX_NUM_BATCHED_TOKENS, CacheConfig, EngineConfig, ModelConfig
from engine.sizing import ConfigError, Dtype, parse_bytes, parse_dtype
from engine.sizing.bounds import MAX_PARAMETERS
from kvscope.options import plan as options
from kvscope.options.model import chosen_model
from kvscope.output import fail
from kvscope.plan.gpus import find_gpu
from kvscope.plan.plan import Plan, PoolMemory, Settings
from kvscope.plan.report import document, notes
from kvscope.plan.shape import ModelShape, shape_from_config, shape_from_numbers
from kvscope.plan.source import find_config
from kvscope.plan.tables import tables
from kvscope.plan.weights import Parameters

DEFAULT_OTHER = "512MiB"
DEFAULT_MAX_MODEL_LEN = 4096
"""Used where neither a flag nor the checkpoint gives one."""

_CACHE = CacheConfig()
_LIMITS = EngineConfig(model=ModelConfig(), cache=_CACHE)


def plan(
    context: typer.Context,
    checkpoint: options.Checkpoint = None,
    model: options.Model = None,
    layers: options.Layers = None,
    kv_heads: options.KvHeads = None,
    head_dim: options.HeadDim = None,
    params: options.Params = None,
    dtype: options.Dtype = "auto",
    kv_cache_dtype: options.KvCacheDtype = "auto",
    gpu: options.Gpu = None,
    gpu_memory: options.GpuMemory = None,
    gpu_memory_utilization: options.GpuMemoryUtilization = _CACHE.gpu_memory_utilization,
    other_memory: options.OtherMemory = DEFAULT_OTHER,
    activation_memory: options.ActivationMemory = None,
    kv_cache_memory_bytes: options.KvCacheMemoryBytes = None,
    host_memory: options.HostMemory = None,
    block_size: options.BlockSize = _CACHE.block_size,
    max_model_len: options.MaxModelLen = None,
    concurrency: options.Concurrency = _LIMITS.max_num_seqs,
    max_num_batched_tokens: options.MaxNumBatchedTokens = DEFAULT_MAX_NUM_BATCHED_TOKENS,
    window_aware: options.WindowAware = False,
    output_json: options.OutputJson = False,
    plot: options.Plot = None,
) -> None:
    """Calculate a model's KV cache, and what fits on a GPU.

    Example: kvscope plan ./Qwen3-30B-A3B --gpu H200 --max-model-len 16384 --concurrency 32

    Example: kvscope plan --layers 32 --kv-heads 8 --head-dim 128 --params 8.03e9 --gpu L4

    The calculation is the engine's at start-up, except that activations are estimated where the
    engine measures them. docs/guides/planning.md has the formulas.
    """
    try:
        name = chosen_model(context, checkpoint, model)
        shape = _shape(name, {"layers": layers, "kv_heads": kv_heads, "head_dim": head_dim})
        if params is not None:
            shape = replace(shape, parameters=Parameters(matrices=_weights(params)))
        weight_dtype = _dtype(dtype, shape.dtype or Dtype.BF16)
        settings = Settings(
            weight_dtype=weight_dtype,
            kv_dtype=_dtype(kv_cache_dtype, Dtype.BF16 if weight_dtype.quantized else weight_dtype),
            block_size=block_size,
            max_model_len=max_model_len or shape.max_positions or DEFAULT_MAX_MODEL_LEN,
            concurrency=concurrency,
            max_num_batched_tokens=max(max_num_batched_tokens, concurrency),
            window_aware=window_aware,
            activations=None if activation_memory is None else parse_bytes(activation_memory),
        )
        memory = PoolMemory(
            total=_total(gpu, gpu_memory),
            pool=None if kv_cache_memory_bytes is None else parse_bytes(kv_cache_memory_bytes),
            free_host=None if host_memory is None else parse_bytes(host_memory),
            utilization=gpu_memory_utilization,
            other=parse_bytes(other_memory),
        )
        result = Plan(shape=shape, settings=settings, memory=memory)
    except (ConfigError, ValueError) as error:
        raise fail(error) from None
    if plot is not None:
        _plot(result, plot)
    if output_json:
        sys.stdout.write(json.dumps(document(result), indent=2) + "\n")
    else:
        _print(result)


def _shape(model: str | None, numbers: dict[str, int | None]) -> ModelShape:
    given = {name: number for name, number in numbers.items() if number is not None}
    if model is not None:
        return shape_from_config(find_config(model), model, given)
    missing = [f"--{name.replace('_', '-')}" for name in numbers if name not in given]
    if missing:
        raise ValueError(f"give a checkpoint, or {', '.join(missing)}")
    return shape_from_numbers(**given)


def _weights(params: float) -> int:
    """Raises ValueError for what is no number of weights."""
    if not params <= MAX_PARAMETERS:  # also refuses NaN
        raise ValueError(f"--params must be at most {MAX_PARAMETERS:g}, got {params}")
    return round(params)


def _dtype(name: str, auto: Dtype) -> Dtype:
    return auto if name == "auto" else parse_dtype(name)


def _total(name: str | None, amount: str | None) -> int | None:
    if name is not None and amount is not None:
        raise ValueError("--gpu and --gpu-memory exclude each other: give one")
    if amount is not None:
        return parse_bytes(amount)
    return None if name is None else find_gpu(name).total_bytes


def _plot(result: Plan, file: Path) -> None:
    if find_spec("matplotlib") is None:
        raise fail("--plot needs matplotlib: pip install '.[plot]' in a checkout of kvscope")
    from kvscope.plan.plot import save_plot

    try:
        save_plot(result, file)
    except (OSError, ValueError) as error:
        raise fail(f"cannot write {file}: {error}") from None


def _print(result: Plan) -> None:
    console = Console()
    for title, table in tables(result):
        console.print(f"\n{title}", style="bold", markup=False, highlight=False)
        console.print(table)
    for note in notes(result):
        console.print(f"Note: {note}.", style="dim", markup=False, highlight=False)
