"""`kvscope whatif`: other caches, other routers and other options, from traces and recordings."""

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from kvscope.options.generated import with_options
from kvscope.options.routing import RoutingOptions
from kvscope.options.twin import TwinOptions
from kvscope.output import EXIT_SIGNALLED, Output, OutputOption, fail
from kvscope.traces.dialects import Dialect
from kvscope.whatif.findings import WhatIfError, is_recording, save_plot
from kvscope_exporter.extras import lacking

if TYPE_CHECKING:
    from kvscope.traces import Trace

_Reader = Callable[[Path], "Trace"]
_Progress = Callable[[str, int], None]
"""Takes a number, and what is counted."""
_Print = Callable[[bool], None]
"""Prints a report, as JSON or for people."""

_FIRST_AFTER_SECONDS = 1.0
_LINE_EVERY_SECONDS = 5.0
"""Interval without a terminal."""
_ROUTING = RoutingOptions()
_TWIN = TwinOptions()


@with_options
def whatif(
    file: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="A trace (a JSON object a line, with hash_ids: docs/reference/traces.md), or a "
            "recording, *.kvsr; with --replicas also the recordings of several replicas.",
        ),
    ],
    capacity: Annotated[
        list[int] | None,
        typer.Option(
            metavar="BLOCKS",
            help="A capacity to compute, in blocks; may be repeated. Default: about ten up to the "
            "number of different blocks, or up to four times the recorded pool. With --replicas: "
            "of each replica's pool. Default: the recorded pools'.",
        ),
    ] = None,
    output: OutputOption = Output.TEXT,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the curve to a .png, .svg or .pdf as well."),
    ] = None,
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
    routing: RoutingOptions = _ROUTING,
    twin: TwinOptions = _TWIN,
) -> None:
    """Compute what another cache size, router or option would have done.

    One pass over a trace or a recording gives every capacity at once. With --replicas the requests
    are replayed on that many pools, under each policy of a router. With --set the recorded calls
    are replayed on the server's own scheduler, with another option and a step time that is fitted
    to the recording.

    Example: kvscope whatif conversation_trace.jsonl --capacity 1000 --capacity 50000

    Example: kvscope whatif qwen.kvsr --plot curve.png

    Example: kvscope whatif conversation_trace.jsonl --replicas 8 --capacity 2000

    Example: kvscope whatif a.kvsr b.kvsr --replicas 2 --policy recorded --policy kv-aware

    Example: kvscope whatif qwen.kvsr --set max_num_seqs=128 --python /opt/vllm/bin/python

    docs/plan/whatif.md says how to read the results, and what is not in them.
    """
    from kvscope.traces import read_trace

    reader = partial(read_trace, dialect=dialect, block_size=block_size)
    capacities = capacity or []
    for blocks in capacities:
        if blocks < 1:
            raise fail(f"--capacity {blocks}: a cache has at least one block")
    if plot is not None and routing.replicas is not None:
        raise fail("--plot draws the curve of one cache: leave out --replicas")
    if plot is not None and (problem := lacking("--plot", "plot")):
        raise fail(problem)
    with _failing_in_one_line(file[0]), _showing_progress() as progress:
        if twin.changes:
            if routing.replicas is not None or capacities or plot is not None or len(file) > 1:
                raise WhatIfError(
                    "--set answers about one recording: leave out --replicas, --capacity and --plot"
                )
            print_report = _twin(file[0], twin, progress)
        elif routing.replicas is not None:
            print_report = _routes(file, reader, capacities, routing, progress)
        elif len(file) > 1:
            raise WhatIfError(
                "several files are replayed on replicas: give their number, --replicas N"
            )
        else:
            print_report = _curve(file[0], reader, capacities, plot, progress)
    print_report(output.is_json)


def _curve(
    file: Path,
    reader: "_Reader",
    capacities: Sequence[int],
    plot: Path | None,
    progress: _Progress,
) -> _Print:
    from kvscope.whatif import report
    from kvscope.whatif.recording import curve_of_recording
    from kvscope.whatif.trace import curve_of_trace

    if is_recording(file):
        found = curve_of_recording(file, capacities, partial(progress, "batches read"))
    else:
        found = curve_of_trace(reader(file), capacities, partial(progress, "requests read"))
    if plot is not None:
        try:
            save_plot(found, file.name, plot)
        except (OSError, ValueError) as error:
            raise WhatIfError(f"cannot write {plot}: {error}") from None
    return partial(_print, report, [file], found)


def _routes(
    files: Sequence[Path],
    reader: "_Reader",
    capacities: Sequence[int],
    options: RoutingOptions,
    progress: _Progress,
) -> _Print:
    from kvscope.whatif.routing import report
    from kvscope.whatif.routing.comparison import compare
    from kvscope.whatif.routing.recordings import workload_of_recordings
    from kvscope.whatif.routing.workload import workload_of_trace

    kinds = [is_recording(file) for file in files]
    if all(kinds):
        workload = workload_of_recordings(files, partial(progress, "batches read"))
    elif len(files) > 1:
        raise WhatIfError("name one trace, or the recordings of several replicas")
    else:
        workload = workload_of_trace(reader(files[0]), partial(progress, "requests read"))
    found = compare(workload, options, capacities, partial(progress, "requests replayed"))
    return partial(_print, report, files, found)


def _twin(file: Path, options: TwinOptions, progress: _Progress) -> _Print:
    from kvscope.twin import report
    from kvscope.twin.comparison import Scheduler, compare
    from kvscope.twin.own_book import OwnScheduler
    from kvscope.twin.process import Worker
    from kvscope.twin.traffic import Traffic

    if not is_recording(file):
        raise WhatIfError(f"{file}: --set replays a recording; a trace has no steps")
    with ExitStack() as stack:

        def scheduler_for(traffic: Traffic) -> Scheduler:
            if options.python is None:
                return OwnScheduler(traffic)
            return stack.enter_context(closing(Worker(options.python, traffic)))

        found = compare(file, options.changes or [], scheduler_for, partial(progress, "replays"))
    return partial(_print, report, [file], found)


def _print(report: Any, files: Sequence[Path], found: Any, is_json: bool) -> None:
    if is_json:
        sys.stdout.write(json.dumps(report.document(files, found), indent=2) + "\n")
    else:
        report.show(Console(), files, found)


@contextmanager
def _failing_in_one_line(file: Path) -> Iterator[None]:
    from kvscope.traces import TraceError
    from kvscope_exporter.recorder.format import RecordingError

    try:
        yield
    except (WhatIfError, TraceError, RecordingError) as error:
        raise fail(error) from None
    except OSError as error:
        raise fail(f"{error.filename or file}: cannot be read: {error.strerror}") from None
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_SIGNALLED + signal.SIGINT) from None


@contextmanager
def _showing_progress() -> Iterator[_Progress]:
    """Progress on standard error: a line on a terminal, else occasional lines."""
    console = Console(stderr=True)
    status = console.status("reading") if console.is_terminal else None
    began = time.monotonic()
    next_line = began + (_LINE_EVERY_SECONDS if status is None else _FIRST_AFTER_SECONDS)

    def show(what: str, count: int) -> None:
        nonlocal next_line
        if (now := time.monotonic()) < next_line:
            return
        if status is not None:
            status.update(f"{count:,} {what}")
            return
        next_line = now + _LINE_EVERY_SECONDS
        with suppress(OSError):  # the curve is good even if its progress cannot be shown
            typer.echo(f"{now - began:.0f} s: {count:,} {what}", err=True)

    with status or nullcontext():
        yield show
