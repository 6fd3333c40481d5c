"""`kvscope plan`: calculates what fits on a GPU from a checkpoint's config.json; loads nothing."""

import json
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import typer
from rich.console import Console

from engine.sizing import ConfigError, Dtype, parse_bytes, parse_dtype
from engine.sizing.units import MAX_PARAMETERS
from kvscope.options.generated import with_options
from kvscope.options.model import Checkpoint, chosen_model
from kvscope.options.plan import PlanOptions
from kvscope.output import fail
from kvscope.plan.gpus import find_gpu
from kvscope.plan.plan import Plan, PoolMemory, Settings
from kvscope.plan.report import document, notes
from kvscope.plan.shape import ModelShape, shape_from_config, shape_from_numbers
from kvscope.plan.source import find_config
from kvscope.plan.tables import tables
from kvscope.plan.weights import Parameters

DEFAULT_MAX_MODEL_LEN = 4096
"""Used if neither a flag nor the checkpoint gives one."""

_DEFAULT = PlanOptions()


@with_options
def plan(
    context: typer.Context,
    checkpoint: Checkpoint = None,
    given: PlanOptions = _DEFAULT,
) -> None:
    """Calculate a model's KV cache, and what fits on a GPU.

    Example: kvscope plan ./Qwen3-30B-A3B --gpu H200 --max-model-len 16384 --concurrency 32

    Example: kvscope plan --layers 32 --kv-heads 8 --head-dim 128 --params 8.03e9 --gpu L4

    The calculation is the engine's at start-up, except that activations are estimated where the
    engine measures them. docs/guides/planning.md has the formulas.
    """
    try:
        name = chosen_model(context, checkpoint, given.model)
        shape = _shape(name, given)
        if given.params is not None:
            shape = replace(shape, parameters=Parameters(matrices=_weights(given.params)))
        weight_dtype = _dtype(given.dtype, shape.dtype or Dtype.BF16)
        settings = Settings(
            weight_dtype=weight_dtype,
            kv_dtype=_dtype(
                given.kv_cache_dtype, Dtype.BF16 if weight_dtype.quantized else weight_dtype
            ),
            block_size=given.block_size,
            max_model_len=given.max_model_len or shape.max_positions or DEFAULT_MAX_MODEL_LEN,
            concurrency=given.concurrency,
            max_num_batched_tokens=max(given.max_num_batched_tokens, given.concurrency),
            window_aware=given.window_aware,
            activations=None
            if given.activation_memory is None
            else parse_bytes(given.activation_memory),
        )
        memory = PoolMemory(
            total=_total(given.gpu, given.gpu_memory),
            pool=None
            if given.kv_cache_memory_bytes is None
            else parse_bytes(given.kv_cache_memory_bytes),
            free_host=None if given.host_memory is None else parse_bytes(given.host_memory),
            utilization=given.gpu_memory_utilization,
            other=parse_bytes(given.other_memory),
        )
        result = Plan(shape=shape, settings=settings, memory=memory)
    except (ConfigError, ValueError) as error:
        raise fail(error) from None
    if given.plot is not None:
        _plot(result, given.plot)
    if given.output_json:
        sys.stdout.write(json.dumps(document(result), indent=2) + "\n")
    else:
        _print(result)


def _shape(model: str | None, options: PlanOptions) -> ModelShape:
    numbers = {name: getattr(options, name) for name in ("layers", "kv_heads", "head_dim")}
    given = {name: number for name, number in numbers.items() if number is not None}
    if model is not None:
        return shape_from_config(find_config(model), model, given)
    missing = [f"--{name.replace('_', '-')}" for name in numbers if name not in given]
    if missing:
        raise ValueError(f"give a checkpoint, or {', '.join(missing)}")
    return shape_from_numbers(**given)


def _weights(params: float) -> int:
    """Raises ValueError if it is not a number of weights."""
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
