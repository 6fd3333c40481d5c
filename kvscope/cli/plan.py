"""`kvscope plan`: what fits on GPUs, calculated from a checkpoint's config.json; loads nothing."""

import json
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from engine.sizing import ConfigError, Dtype, parse_bytes, parse_dtype
from engine.sizing.units import MAX_PARAMETERS
from kvscope.options.generated import with_options
from kvscope.options.model import Checkpoint, chosen_model
from kvscope.options.plan import PlanOptions
from kvscope.output import fail
from kvscope.plan.adapters import Adapters
from kvscope.plan.gpus import find_gpu
from kvscope.plan.parallel import Parallelism
from kvscope.plan.plan import Plan, PoolMemory, Settings
from kvscope.plan.report import document, notes
from kvscope.plan.shape import ModelShape, shape_from_config, shape_from_numbers
from kvscope.plan.source import find_config
from kvscope.plan.speculation import Speculation, speculation_of
from kvscope.plan.storage import Storage, plain_storage
from kvscope.plan.tables import tables
from kvscope.plan.verdict import Verdict, smallest, verdict
from kvscope.plan.weights import bulk

DEFAULT_MAX_MODEL_LEN = 4096
"""Used where neither a flag nor the checkpoint gives one."""
_LEAST_BYTES = 2**20
"""A number without a unit that is smaller was meant in another unit."""

_DEFAULT = PlanOptions()


@with_options
def plan(
    context: typer.Context,
    checkpoint: Checkpoint = None,
    given: PlanOptions = _DEFAULT,
) -> None:
    """Calculate a model's KV cache, and what fits on GPUs.

    Example: kvscope plan ./Qwen3-30B-A3B --gpu H200 --max-model-len 16384 --concurrency 32

    Example: kvscope plan ./gpt-oss-120b --gpu "NVIDIA H100 80GB HBM3" --tensor-parallel-size 2

    Example: kvscope plan --from http://127.0.0.1:8000 --gpu H200 --max-model-len 65536

    Example: kvscope plan --layers 32 --kv-heads 8 --head-dim 128 --params 8.03e9 --gpu L4

    exit code 1 if the GPUs do not hold one sequence of full length. The calculation is vLLM's
    at start-up, except that activations are estimated where a server measures them.
    docs/guides/planning.md has the formulas.
    """
    try:
        name = chosen_model(context, checkpoint, given.model)
        if given.from_url is not None:
            given = _as_running(context, given.from_url, replace(given, model=name))
            name = given.model
        result = _plan(_shape(name, given), given)
        free = given.tensor_parallel_size is None and given.pipeline_parallel_size == 1
        if free and result.memory.total is not None:
            result = smallest(result, 1) or result
    except (ConfigError, ValueError) as error:
        raise fail(error) from None
    if given.plot is not None:
        _plot(result, given.plot)
    answer = verdict(result, _gpu_name(given))
    if given.output_json:
        sys.stdout.write(json.dumps(document(result, answer), indent=2) + "\n")
    else:
        _print(result, answer)
    if answer is not None and not answer.fits:
        raise typer.Exit(1)


def _as_running(context: typer.Context, url: str, given: PlanOptions) -> PlanOptions:
    """Options that were not given, as the server at the URL has them. Raises ValueError."""
    from kvscope.diagnosis.scrape import ScrapeError
    from kvscope.plan.running import running

    sized = ("gpu", "gpu_memory", "kv_cache_memory_bytes", "host_memory")
    is_sized = any(getattr(given, name) is not None for name in sized)
    has_model = given.model is not None or given.layers is not None
    try:
        known = running(url, gpu=not is_sized).known
    except ScrapeError as error:
        raise ValueError(str(error)) from error
    if not is_sized and "gpu" not in known:
        raise ValueError(f"{url} does not say on which GPU it runs: give --gpu or --gpu-memory")
    taken: dict[str, Any] = {}
    for name, value in known.items():
        source = context.get_parameter_source(name)
        is_given = source is not None and source.name != "DEFAULT"
        if not (is_given or (name == "model" and has_model) or (name == "gpu" and is_sized)):
            taken[name] = value
    return replace(given, **taken)


def _shape(model: str | None, options: PlanOptions) -> ModelShape:
    numbers = {name: getattr(options, name) for name in ("layers", "kv_heads", "head_dim")}
    given = {name: number for name, number in numbers.items() if number is not None}
    if model is not None:
        stored = options.dtype == "auto"
        shape = shape_from_config(find_config(model), model, given, stored=stored)
    else:
        missing = [f"--{name.replace('_', '-')}" for name in numbers if name not in given]
        if missing:
            raise ValueError(f"give a checkpoint, or {', '.join(missing)}")
        shape = shape_from_numbers(**given)
    if options.params is None:
        return shape
    return replace(shape, weights=bulk(_weights(options.params), shape.num_layers))


def _plan(shape: ModelShape, given: PlanOptions) -> Plan:
    storage = _storage(given.dtype, shape.storage)
    settings = Settings(
        storage=storage,
        kv_dtype=_dtype(given.kv_cache_dtype) or storage.rest,
        state_dtype=_dtype(given.mamba_ssm_cache_dtype) or shape.state_dtype,
        block_size=given.block_size,
        max_model_len=given.max_model_len or shape.max_positions or DEFAULT_MAX_MODEL_LEN,
        concurrency=given.concurrency,
        max_num_batched_tokens=max(given.max_num_batched_tokens, given.concurrency),
        parallel=Parallelism(
            tensor=given.tensor_parallel_size or 1,
            pipeline=given.pipeline_parallel_size,
            data=given.data_parallel_size,
            experts=given.enable_expert_parallel,
        ),
        windows=not given.disable_hybrid_kv_cache_manager,
        prefix_caching=given.enable_prefix_caching,
        speculation=Speculation()
        if given.speculative_config is None
        else speculation_of(given.speculative_config, shape, find_config),
        adapters=Adapters(slots=given.max_loras, rank=given.max_lora_rank),
        activations=_bytes("--activation-memory", given.activation_memory),
    )
    memory = PoolMemory(
        total=_total(given.gpu, given.gpu_memory),
        pool=_bytes("--kv-cache-memory-bytes", given.kv_cache_memory_bytes),
        free_host=_bytes("--host-memory", given.host_memory),
        utilization=given.gpu_memory_utilization,
        other=_bytes("--other-memory", given.other_memory) or 0,
        tier=_bytes("--kv-offloading-size", given.kv_offloading_size) or 0,
    )
    return Plan(shape=shape, settings=settings, memory=memory)


def _storage(name: str, stored: Storage | None) -> Storage:
    if name == "auto":
        return stored or Storage(rest=Dtype.BF16)
    return plain_storage(parse_dtype(name))


def _weights(params: float) -> int:
    """Raises ValueError if it is not a number of weights."""
    if not params <= MAX_PARAMETERS:  # also refuses NaN
        raise ValueError(f"--params must be at most {MAX_PARAMETERS:g}, got {params}")
    return round(params)


def _dtype(name: str) -> Dtype | None:
    return None if name == "auto" else parse_dtype(name)


def _bytes(flag: str, text: str | None) -> int | None:
    """Raises ValueError for a bare number that cannot have been meant in bytes."""
    if text is None:
        return None
    amount = parse_bytes(text)
    if amount < _LEAST_BYTES and text.strip().isdigit():
        raise ValueError(f"{flag} {text} would be {text} bytes: say {text}GB or {text}GiB")
    return amount


def _total(name: str | None, amount: str | None) -> int | None:
    if name is not None and amount is not None:
        raise ValueError("--gpu and --gpu-memory exclude each other: give one")
    return _bytes("--gpu-memory", amount) if name is None else find_gpu(name).total_bytes


def _gpu_name(given: PlanOptions) -> str:
    if given.gpu is not None:
        return find_gpu(given.gpu).name
    return f"GPU of {given.gpu_memory}"


def _plot(result: Plan, file: Path) -> None:
    if find_spec("matplotlib") is None:
        raise fail("--plot needs matplotlib: pip install '.[plot]' in a checkout of kvscope")
    from kvscope.plan.plot import save_plot

    try:
        save_plot(result, file)
    except (OSError, ValueError) as error:
        raise fail(f"cannot write {file}: {error}") from None


def _print(result: Plan, answer: Verdict | None) -> None:
    console = Console()
    if answer is not None:
        style = "bold" if answer.fits else "bold red"
        console.print(f"{answer.text}.", style=style, markup=False, highlight=False)
    for title, table in tables(result):
        console.print(f"\n{title}", style="bold", markup=False, highlight=False)
        console.print(table)
    for note in notes(result):
        console.print(f"Note: {note}.", style="dim", markup=False, highlight=False)
