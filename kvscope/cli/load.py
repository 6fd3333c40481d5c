"""`kvscope load`: sends a workload to an OpenAI-compatible server and reports the outcome."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated

import httpx
import typer

from kvscope.cli.interrupts import Stop
from kvscope.load import (
    LoadSpec,
    Report,
    Scenario,
    ServerError,
    SpecError,
    StoppedError,
    run,
)
from kvscope.load.progress import showing_progress
from kvscope.options.configuration import ListenConfig
from kvscope.output import fail
from kvscope.places import server_named
from kvscope.traces.dialects import Dialect

EXIT_FAILED = 1

_DEFAULT_DURATION_SECONDS = 60.0
_FLAGS = {
    "duration_seconds": "--duration",
    "num_sessions": "--sessions",
    "period_seconds": "--period",
    "timeout_seconds": "--timeout",
}
"""Options by the fields that they set, if the names differ."""


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
            metavar="FILE",
            exists=True,
            dir_okay=False,
            readable=True,
            help="Trace of any dialect, for scenario trace (docs/reference/traces.md).",
        ),
    ] = None,
    url: Annotated[
        str,
        typer.Option(metavar="URL", help="Base URL of the server, with or without /v1."),
    ] = "http://127.0.0.1:8000",
    model: Annotated[
        str | None, typer.Option(help="Model to request. Default: the first of /v1/models.")
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            envvar="KVSCOPE_LOAD_API_KEY",
            help="Bearer token to send. Visible in `ps`; prefer the variable.",
        ),
    ] = None,
    duration: Annotated[
        float | None,
        typer.Option(
            help="Seconds during which requests start. Default: 60; with --num-requests or a "
            "trace, until those are sent.",
        ),
    ] = None,
    num_requests: Annotated[
        int | None,
        typer.Option(
            "--num-requests", "--limit", help="Requests to send, or lines of the trace to read."
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            help="Requests in flight. Default: 16, and a request starts when another ends. With "
            "--rate (default 256) further arrivals are dropped; with a trace (256) they wait.",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(help="Poisson arrivals per second, independent of how many are in flight."),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(help="Longest reply in tokens. Default: 64; for a trace its own lengths."),
    ] = None,
    ignore_eos: Annotated[
        bool | None,
        typer.Option(
            "--ignore-eos/--no-ignore-eos",
            help="Generate to the requested length (vLLM's extension). Default: for a trace only.",
        ),
    ] = None,
    max_model_len: Annotated[
        int | None, typer.Option(help="Context of the model. Default: the one in /v1/models.")
    ] = None,
    vocab_size: Annotated[
        int,
        typer.Option(
            help="Upper limit of token ids sent by rag and trace. 256 suits byte-level models."
        ),
    ] = 256,
    sessions: Annotated[
        int,
        typer.Option(
            help="Conversations open at once: the working set of the prefix cache.",
        ),
    ] = 32,
    period: Annotated[
        float, typer.Option(help="Seconds of one rise and fall in bursts and mix.")
    ] = 20.0,
    time_scale: Annotated[
        float,
        typer.Option(help="Speed of a trace; inf: in order, as fast as --concurrency allows."),
    ] = 1.0,
    length_scale: Annotated[
        float,
        typer.Option(
            help="Scale of a trace's lengths: 0.0625 makes 32 tokens of a 512-token block."
        ),
    ] = 1.0,
    truncate: Annotated[
        bool,
        typer.Option(
            "--truncate",
            help="Cut a trace's prompts that exceed the context, instead of skipping them.",
        ),
    ] = False,
    dialect: Annotated[
        Dialect | None,
        typer.Option(help="Format of the trace. Default: recognised by its rows."),
    ] = None,
    block_size: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS",
            min=1,
            help="Tokens behind one id of the trace. Default: what its rows show.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed; the same one makes the same workload.")] = 0,
    timeout: Annotated[float, typer.Option(help="Seconds that a request may take.")] = 300.0,
    output_json: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the report as JSON; -: to standard output."),
    ] = None,
) -> None:
    """Send a workload to a server, and report how it went.

    The server can be any with OpenAI's API. To measure a server's performance use guidellm, or
    vLLM's own `vllm bench serve`.

    Example: kvscope load chat --url http://127.0.0.1:8000 --duration 60 --concurrency 16

    Example: kvscope load trace conversation_trace.jsonl --length-scale 0.0625 --time-scale 60

    A request refused with 429 is sent again after its Retry-After, up to five times.

    Exit status: 0 after a complete run; 1 if no request succeeded or the server was gone at the
    end; 2 if the run cannot start; 130 after Ctrl-C and 143 after SIGTERM, both with a report.
    """
    if duration is None and num_requests is None and scenario is not Scenario.TRACE:
        duration = _DEFAULT_DURATION_SECONDS
    try:
        spec = LoadSpec(
            url=server_named(url, ListenConfig().port),
            scenario=scenario,
            trace_file=trace_file,
            trace_dialect=dialect,
            trace_block_size=block_size,
            model=model,
            api_key=api_key,
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
        with Stop() as stop, showing_progress() as on_progress:
            report = asyncio.run(run(spec, stop=stop, on_progress=on_progress))
    except SpecError as error:
        flag = _FLAGS.get(error.name, "--" + error.name.replace("_", "-"))
        raise fail(f"{flag} {error.problem}") from None
    except StoppedError:
        raise typer.Exit(stop.exit_code) from None
    except (ValueError, OSError, ServerError, httpx.InvalidURL) as error:
        raise fail(error) from None
    _print(report, output_json)
    if report.interrupted:
        raise typer.Exit(stop.exit_code)
    if report.failed_altogether:
        raise typer.Exit(EXIT_FAILED)


def _print(report: Report, output_json: str | None) -> None:
    """The text goes to standard output, unless the JSON does. It is printed last, so that the JSON
    is written even if the text has no reader.
    """
    problem: OSError | None = None
    document = json.dumps(report.to_dict(), indent=2) + "\n"
    if output_json not in (None, "-"):
        try:
            Path(output_json).write_text(document)
        except OSError as error:
            problem = error
    if output_json == "-":
        sys.stdout.write(document)
        sys.stdout.flush()
    for line in report.lines():
        typer.echo(line, err=output_json == "-")
    if problem is not None:
        raise fail(problem)
