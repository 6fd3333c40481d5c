"""`kvscope load`: sends a workload to an OpenAI-compatible server and reports the outcome."""

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import httpx
import typer

from kvscope.answer_document import AnswerError, Connection
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
from kvscope.output import Output, OutputOption, fail
from kvscope.places import server_named

EXIT_FAILED = 1
DEFAULT_SERVER = "http://127.0.0.1:8000"

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
    places: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE] [SERVER]",
            help="For scenario trace, first its FILE, of any dialect (docs/reference/traces.md). "
            "Then the server, with or without /v1: a URL, HOST:PORT or HOST. Default: "
            f"{DEFAULT_SERVER}.",
            show_default=False,
        ),
    ] = None,
    spec: LoadSpec = LoadSpec(),
    connection: Connection = Connection(seconds=300.0),
    output: OutputOption = Output.TEXT,
) -> None:
    """Send a workload to a server, and report how it went.

    The server can be any with OpenAI's API. To measure a server's performance use guidellm, or
    vLLM's own `vllm bench serve`.

    Example: kvscope load chat http://127.0.0.1:8000 --duration 1m --concurrency 16

    Example: kvscope load trace conversation_trace.jsonl --length-scale 0.0625 --time-scale 60

    A request refused with 429 is sent again after its Retry-After, up to five times.

    Exit status: 0 after a complete run; 1 if no request succeeded or the server was gone at the
    end; 2 if the run cannot start; 130 after Ctrl-C and 143 after SIGTERM, both with a report.
    """
    duration = spec.duration_seconds
    if duration is None and spec.num_requests is None and scenario is not Scenario.TRACE:
        duration = _DEFAULT_DURATION_SECONDS
    given = list(places or ())
    has_file = scenario is Scenario.TRACE and given and "://" not in given[0]
    file = Path(given.pop(0)) if has_file else None
    if len(given) > 1:
        raise fail(f"name one server, not {' and '.join(given)}; only `load trace` takes a FILE")
    try:
        spec = replace(
            spec,
            url=server_named(given[0] if given else DEFAULT_SERVER, Address().port),
            scenario=scenario,
            trace_file=file,
            duration_seconds=duration,
            api_key=connection.token,
            timeout_seconds=connection.seconds,
        )
        with Stop() as stop, showing_progress() as on_progress:
            report = asyncio.run(run(spec, stop=stop, on_progress=on_progress))
    except StoppedError:
        raise typer.Exit(stop.exit_code) from None
    except OSError as error:
        raise fail(f"{error.filename or spec.url}: {error.strerror or error}") from None
    except (AnswerError, ValueError, ServerError, httpx.InvalidURL) as error:
        raise fail(error) from None
    _print(report, as_json=output.is_json)
    if report.interrupted:
        raise typer.Exit(stop.exit_code)
    if report.failed_altogether:
        raise typer.Exit(EXIT_FAILED)


def _print(report: Report, *, as_json: bool) -> None:
    """The text goes to standard output, unless the JSON does. It is printed last, so that the JSON
    is written even if the text has no reader.
    """
    if as_json:
        sys.stdout.write(json.dumps(report.to_dict(), indent=2) + "\n")
        sys.stdout.flush()
    for line in report.lines():
        typer.echo(line, err=as_json)
