"""`kvscope load`: sends a workload to any OpenAI-compatible server and reports what came of it."""

import asyncio
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as ProgressBar

from engine.workload import (
    LoadSpec,
    Progress,
    Report,
    Scenario,
    ServerError,
    StoppedError,
    run,
)
from engine.workload.table import report_table

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_SIGNALLED = 128
"""Plus the signal's number, as a shell reports it: 130 after Ctrl-C."""

_DEFAULT_DURATION_SECONDS = 60.0
_LINE_EVERY_SECONDS = 5.0
"""Progress where there is no terminal: often enough for a log, not a flood."""


def load(
    scenario: Annotated[
        Scenario,
        typer.Argument(
            help="chat: shared system prompts, growing conversations. rag: few long documents, "
            "many questions. agents: the whole conversation is sent again every turn. "
            "bursts: chats, quiet and burst in turn. mix: chat, rag and agents, rising and "
            "falling. trace: replay FILE.",
        ),
    ],
    trace_file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            exists=True,
            dir_okay=False,
            readable=True,
            help="Trace in Mooncake's format, for scenario trace.",
        ),
    ] = None,
    url: Annotated[
        str, typer.Option(help="Base URL of the server, with or without /v1.")
    ] = "http://127.0.0.1:8000",
    model: Annotated[
        str | None, typer.Option(help="Model to ask for. Default: first of /v1/models.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="KVSCOPE_API_KEY", help="Sent as a bearer token.")
    ] = None,
    metrics_url: Annotated[
        str | None, typer.Option(help="The server's Prometheus metrics. Default: URL/metrics.")
    ] = None,
    duration: Annotated[
        float | None,
        typer.Option(
            help="Seconds during which requests start. Default: 60, or until --num-requests are "
            "sent or the trace ends.",
        ),
    ] = None,
    num_requests: Annotated[
        int | None,
        typer.Option(
            "--num-requests", "--limit", help="Requests to send; lines of the trace to read."
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            help="Requests in flight. Default: 16, and a request starts when another ends. With "
            "--rate (default 256) arrivals beyond it are shed, with trace (256) they wait.",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(help="Poisson arrivals a second, whether or not others have ended."),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(help="Longest reply. Default: 64; for trace the trace's own lengths."),
    ] = None,
    ignore_eos: Annotated[
        bool | None,
        typer.Option(
            "--ignore-eos/--no-ignore-eos",
            help="Generate to the length asked for (vLLM's extension). Default: for trace only.",
        ),
    ] = None,
    max_model_len: Annotated[
        int | None, typer.Option(help="Context of the model. Default: what /v1/models says.")
    ] = None,
    vocab_size: Annotated[
        int,
        typer.Option(
            help="Token ids sent by rag and trace stay below it. 256 suits byte-level models."
        ),
    ] = 256,
    sessions: Annotated[
        int,
        typer.Option(
            help="Conversations kept going at once: the working set of the prefix cache.",
        ),
    ] = 32,
    period: Annotated[
        float, typer.Option(help="Seconds of one rise and fall of bursts and mix.")
    ] = 20.0,
    time_scale: Annotated[
        float,
        typer.Option(help="Speed of a trace; inf: as fast as --concurrency lets, in order."),
    ] = 1.0,
    length_scale: Annotated[
        float,
        typer.Option(help="Shrinks a trace: 0.0625 makes 32 tokens of its 512-token blocks."),
    ] = 1.0,
    truncate: Annotated[
        bool,
        typer.Option(
            "--truncate",
            help="Cut prompts of a trace longer than the context, instead of skipping them.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="The same seed makes the same workload.")] = 0,
    timeout: Annotated[float, typer.Option(help="Seconds for a whole request.")] = 300.0,
    output_json: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the report as JSON; - is standard output."),
    ] = None,
) -> None:
    """Send a workload to an OpenAI-compatible server and report throughput, latency and hits.

    Example: kvscope load chat --url http://127.0.0.1:8000 --duration 60 --concurrency 16

    Example: kvscope load trace conversation_trace.jsonl --length-scale 0.0625 --time-scale 60

    A request refused with 429 is sent again after its Retry-After, up to five times.

    Exit status: 0; 1 if no request succeeded or the server went away; 2 if the run cannot start
    (usage, trace, server); 130 after Ctrl-C (143 after SIGTERM), with the report of what was done.
    """
    if duration is None and num_requests is None and scenario is not Scenario.TRACE:
        duration = _DEFAULT_DURATION_SECONDS
    try:
        spec = LoadSpec(
            url=url,
            scenario=scenario,
            trace_file=trace_file,
            model=model,
            api_key=api_key,
            metrics_url=metrics_url,
            seed=seed,
            duration_seconds=duration,
            num_requests=num_requests,
            concurrency=concurrency,
            rate=rate,
            period_seconds=period,
            num_sessions=sessions,
            max_tokens=max_tokens,
            ignore_eos=ignore_eos,
            max_model_len=max_model_len,
            vocab_size=vocab_size,
            time_scale=time_scale,
            length_scale=length_scale,
            truncate=truncate,
            timeout_seconds=timeout,
        )
        with _Stop() as stop, _progress() as on_progress:
            report = asyncio.run(run(spec, stop=stop.event, on_progress=on_progress))
    except StoppedError:
        raise typer.Exit(stop.exit_code) from None
    except (ValueError, OSError, ServerError) as error:
        raise _usage_error(error) from error
    _print(report, output_json)
    if report.interrupted:
        raise typer.Exit(stop.exit_code)
    if report.failed_altogether:
        raise typer.Exit(EXIT_FAILED)


def _print(report: Report, output_json: str | None) -> None:
    """The table goes to standard output, unless JSON does."""
    Console(stderr=output_json == "-").print(report_table(report))
    if output_json is None:
        return
    document = json.dumps(report.to_dict(), indent=2) + "\n"
    if output_json == "-":
        sys.stdout.write(document)
        return
    try:
        Path(output_json).write_text(document)
    except OSError as error:
        raise _usage_error(error) from error


def _usage_error(error: Exception) -> typer.Exit:
    typer.echo(f"kvscope load: {error}", err=True)
    return typer.Exit(EXIT_USAGE)


class _Stop:
    """The first Ctrl-C or SIGTERM ends the run with its report, the second at once."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.exit_code = EXIT_SIGNALLED
        self._previous: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._stop)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: object) -> None:
        self.exit_code = EXIT_SIGNALLED + number
        self.event.set()
        signal.signal(number, self._previous[number])


@contextmanager
def _progress() -> Iterator[Callable[[Progress], None]]:
    """On standard error: a bar on a terminal, else a line every few seconds."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _print_now_and_then()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with ProgressBar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def show(progress: Progress) -> None:
            share = progress.share_done
            bar.update(
                task,
                description=_line(progress),
                completed=share or 0.0,
                total=None if share is None else 1.0,
            )

        yield show


def _print_now_and_then() -> Callable[[Progress], None]:
    next_line = time.monotonic() + _LINE_EVERY_SECONDS

    def show(progress: Progress) -> None:
        nonlocal next_line
        if time.monotonic() >= next_line:
            next_line += _LINE_EVERY_SECONDS
            typer.echo(_line(progress), err=True)

    return show


def _line(progress: Progress) -> str:
    rate = progress.output_tokens / progress.elapsed_seconds if progress.elapsed_seconds else 0.0
    return (
        f"{progress.elapsed_seconds:.0f} s: {progress.ok:,} ok, {progress.failed:,} failed, "
        f"{progress.in_flight:,} in flight, {rate:,.0f} output tok/s"
    )
