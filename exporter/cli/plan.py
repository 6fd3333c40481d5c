"""`kvscope plan`: what fits on a GPU, calculated from a checkpoint's config.json; loads nothing."""

import json
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from engine.config import (
    DEFAULT_GPU_MEMORY_UTILIZATION,
    DEFAULT_MAX_NUM_BATCHED_TOKENS,
    DEFAULT_MAX_NUM_SEQS,
)
from engine.sizing import (
    ConfigError,
    Dtype,
    Memory,
    ModelShape,
    Parameters,
    Plan,
    Settings,
    find_gpu,
    parse_bytes,
    parse_dtype,
    shape_from_config,
    shape_from_numbers,
)
from engine.sizing.report import document, notes
from exporter.cli.plan_source import find_config
from exporter.cli.plan_tables import tables
from exporter.cli.server import fail

DEFAULT_OTHER = "512MiB"
DEFAULT_MAX_MODEL_LEN = 4096
"""Where neither a flag nor the checkpoint says it."""

_MODEL = "Model"
_DEVICE = "Memory"
_SERVING = "Serving"
_OUTPUT = "Output"


def plan(
    model: Annotated[
        str | None,
        typer.Argument(
            help="Folder of a checkpoint, its config.json, or a name on the Hugging Face hub."
        ),
    ] = None,
    layers: Annotated[
        int | None,
        typer.Option(min=1, help="Instead of the checkpoint's.", rich_help_panel=_MODEL),
    ] = None,
    kv_heads: Annotated[
        int | None,
        typer.Option(min=1, help="K and V heads of a layer, likewise.", rich_help_panel=_MODEL),
    ] = None,
    head_dim: Annotated[
        int | None,
        typer.Option(min=1, help="Elements of a head, likewise.", rich_help_panel=_MODEL),
    ] = None,
    params: Annotated[
        float | None,
        typer.Option(
            min=1, help="Number of weights, likewise: 8030261248 or 8.03e9.", rich_help_panel=_MODEL
        ),
    ] = None,
    dtype: Annotated[
        str,
        typer.Option(
            help="Of the weights: auto (as stored, else bf16), fp32, bf16, fp16, fp8, int8, int4.",
            rich_help_panel=_MODEL,
        ),
    ] = "auto",
    kv_cache_dtype: Annotated[
        str,
        typer.Option(
            "--kv-cache-dtype",
            "--kv-dtype",
            help="Of K and V, likewise; auto: the weights', or bf16 if those are quantized.",
            rich_help_panel=_MODEL,
        ),
    ] = "auto",
    gpu: Annotated[
        str | None,
        typer.Option(help="By name: H200, A100-80GB, L40S ...", rich_help_panel=_DEVICE),
    ] = None,
    gpu_memory: Annotated[
        str | None,
        typer.Option(help="Instead of --gpu: 141GB, 139.8GiB.", rich_help_panel=_DEVICE),
    ] = None,
    gpu_memory_utilization: Annotated[
        float,
        typer.Option(
            min=0.01, max=1.0, help="Share of *all* memory, as in vLLM.", rich_help_panel=_DEVICE
        ),
    ] = DEFAULT_GPU_MEMORY_UTILIZATION,
    other_memory: Annotated[
        str,
        typer.Option(help="Context, libraries, CUDA graphs.", rich_help_panel=_DEVICE),
    ] = DEFAULT_OTHER,
    activation_memory: Annotated[
        str | None,
        typer.Option(help="Measured, instead of the estimate.", rich_help_panel=_DEVICE),
    ] = None,
    kv_cache_memory_bytes: Annotated[
        str | None,
        typer.Option(help="Size of the pool itself, instead of a GPU.", rich_help_panel=_DEVICE),
    ] = None,
    host_memory: Annotated[
        str | None,
        typer.Option(
            help="Free memory of a machine without GPU: the rule of `kvscope serve` there.",
            rich_help_panel=_DEVICE,
        ),
    ] = None,
    block_size: Annotated[
        int, typer.Option(min=1, help="Tokens per block.", rich_help_panel=_SERVING)
    ] = 16,
    max_model_len: Annotated[
        int | None,
        typer.Option(
            min=1, help="Longest sequence. Default: the model's.", rich_help_panel=_SERVING
        ),
    ] = None,
    concurrency: Annotated[
        int,
        typer.Option(
            "--concurrency",
            "--max-num-seqs",
            min=1,
            help="Sequences at once.",
            rich_help_panel=_SERVING,
        ),
    ] = DEFAULT_MAX_NUM_SEQS,
    max_num_batched_tokens: Annotated[
        int,
        typer.Option(min=1, help="Tokens of a step, prefill chunked.", rich_help_panel=_SERVING),
    ] = DEFAULT_MAX_NUM_BATCHED_TOKENS,
    window_aware: Annotated[
        bool,
        typer.Option(
            "--window-aware",
            help="Sliding layers keep only what they can see, as in vLLM's hybrid manager.",
            rich_help_panel=_SERVING,
        ),
    ] = False,
    output_json: Annotated[
        bool, typer.Option("--json", help="One JSON document.", rich_help_panel=_OUTPUT)
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also draw it: .png, .svg, .pdf.", rich_help_panel=_OUTPUT
        ),
    ] = None,
) -> None:
    """Say what a model's KV cache takes, and what fits on a GPU beside its weights.

    Example: kvscope plan ./Qwen3-30B-A3B --gpu H200 --max-model-len 16384 --concurrency 32

    Example: kvscope plan --layers 32 --kv-heads 8 --head-dim 128 --params 8.03e9 --gpu L4

    Calculates as the engine does at start-up; activations are estimated where the engine measures
    them. docs/planning.md has the formulas.
    """
    try:
        shape = _shape(model, {"layers": layers, "kv_heads": kv_heads, "head_dim": head_dim})
        if params is not None:
            shape = replace(shape, parameters=Parameters(matrices=round(params)))
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
        memory = Memory(
            total=_total(gpu, gpu_memory),
            pool=None if kv_cache_memory_bytes is None else parse_bytes(kv_cache_memory_bytes),
            free_host=None if host_memory is None else parse_bytes(host_memory),
            utilization=gpu_memory_utilization,
            other=parse_bytes(other_memory),
        )
        result = Plan(shape=shape, settings=settings, memory=memory)
    except (ConfigError, ValueError) as error:
        raise fail(f"plan: {error}") from None
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
        raise ValueError(f"name a checkpoint, or give {', '.join(missing)} as well")
    return shape_from_numbers(**given)


def _dtype(name: str, auto: Dtype) -> Dtype:
    return auto if name == "auto" else parse_dtype(name)


def _total(name: str | None, amount: str | None) -> int | None:
    if name is not None and amount is not None:
        raise ValueError("--gpu and --gpu-memory say the same: give one")
    if amount is not None:
        return parse_bytes(amount)
    return None if name is None else find_gpu(name).total_bytes


def _plot(result: Plan, file: Path) -> None:
    if find_spec("matplotlib") is None:
        raise fail("plan: --plot needs matplotlib: pip install 'kvscope[plot]'")
    from exporter.cli.plan_plot import save_plot

    try:
        save_plot(result, file)
    except (OSError, ValueError) as error:
        raise fail(f"plan: cannot write {file}: {error}") from None


def _print(result: Plan) -> None:
    console = Console()
    for title, table in tables(result):
        console.print(f"\n{title}", style="bold", markup=False, highlight=False)
        console.print(table)
    for note in notes(result):
        console.print(f"Note: {note}.", style="dim", markup=False, highlight=False)
