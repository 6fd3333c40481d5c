"""`kvscope load`: sends a workload to an OpenAI-compatible server and reports the outcome."""

import asyncio
import json
import sys
from dataclasses import replace
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
    StoppedError,
    run,
)
from kvscope.load.progress import showing_progress
from kvscope.options.generated import with_options
from kvscope.options.listen import Address
from kvscope.output import fail
from kvscope.places import server_named

EXIT_FAILED = 1

_DEFAULT_DURATION_SECONDS = 60.0


@with_options
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
    spec: LoadSpec = LoadSpec(),
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
    duration = spec.duration_seconds
    if duration is None and spec.num_requests is None and scenario is not Scenario.TRACE:
        duration = _DEFAULT_DURATION_SECONDS
    try:
        spec = replace(
            spec,
            url=server_named(url, Address().port),
            scenario=scenario,
            trace_file=trace_file,
            duration_seconds=duration,
        )
        with Stop() as stop, showing_progress() as on_progress:
            report = asyncio.run(run(spec, stop=stop, on_progress=on_progress))
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
