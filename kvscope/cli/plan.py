"""`kvscope plan`: what fits on GPUs, calculated from a checkpoint's config.json; loads nothing."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from kvscope.answer_document import Connection
from kvscope.options.generated import with_options
from kvscope.options.model import Checkpoint, chosen_model
from kvscope.options.plan import PlanOptions
from kvscope.output import Output, OutputOption, fail
from kvscope.places import server_named
from kvscope.plan.plan import Plan
from kvscope.plan.report import document, notes
from kvscope.plan.tables import tables
from kvscope.plan.verdict import Verdict
from kvscope.plan.wanted import planned
from kvscope_engine.sizing import ConfigError
from kvscope_exporter.extras import lacking

_DEFAULT = PlanOptions()


@with_options
def plan(
    context: typer.Context,
    checkpoint: Checkpoint = None,
    given: PlanOptions = _DEFAULT,
    connection: Connection = Connection(seconds=5.0),
    output: OutputOption = Output.TEXT,
) -> None:
    """Calculate a model's KV cache, and what fits on GPUs.

    Example: kvscope plan ./Qwen3-30B-A3B --gpu H200 --max-model-len 16384 --concurrency 32

    Example: kvscope plan ./gpt-oss-120b --gpu "NVIDIA H100 80GB HBM3" --tensor-parallel-size 2

    Example: kvscope plan --from http://vllm.example:8000 --gpu H200 --max-model-len 65536

    Example: kvscope plan --layers 32 --kv-heads 8 --head-dim 128 --params 8.03e9 --gpu L4

    Exit status: 1 if the GPUs do not hold one sequence of full length. The calculation is vLLM's
    at start-up, except that activations are estimated where a server measures them.
    docs/reference/memory-formulas.md has the formulas.
    """
    try:
        name = chosen_model(context, checkpoint, given.model)
        if given.from_url is not None:
            given = _as_running(
                context, server_named(given.from_url), replace(given, model=name), connection
            )
            name = given.model
        result, answer = planned(name, given)
    except (ConfigError, ValueError) as error:
        raise fail(error) from None
    if given.plot is not None:
        _plot(result, given.plot)
    if output.is_json:
        sys.stdout.write(json.dumps(document(result, answer), indent=2) + "\n")
    else:
        _print(result, answer)
    if answer is not None and not answer.fits:
        raise typer.Exit(1)


def _as_running(
    context: typer.Context, url: str, given: PlanOptions, connection: Connection
) -> PlanOptions:
    """Options that were not given, as the server at the URL has them. Raises ValueError."""
    from kvscope.answer_document import AnswerError
    from kvscope.plan.running import running

    sized = ("gpu", "gpu_memory", "kv_cache_memory_bytes", "host_memory")
    is_sized = any(getattr(given, name) is not None for name in sized)
    has_model = given.model is not None or given.layers is not None
    try:
        known = running(url, connection, gpu=not is_sized).known
    except AnswerError as error:
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


def _plot(result: Plan, file: Path) -> None:
    if problem := lacking("--plot", "plot"):
        raise fail(problem)
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
