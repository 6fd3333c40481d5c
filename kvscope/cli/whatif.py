"""`kvscope whatif`: other caches, other routers and other options, from traces and recordings."""

import json
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvscope.options.generated import with_options
from kvscope.options.routing import RoutingOptions
from kvscope.options.twin import TwinOptions
from kvscope.output import EXIT_SIGNALLED, Output, OutputOption, fail
from kvscope.traces.dialects import Dialect
from kvscope.whatif.findings import Findings, WhatIfError, save_plot
from kvscope_events.printable import printable
from kvscope_exporter.extras import lacking

if TYPE_CHECKING:
    from kvscope.traces import Trace
    from kvscope.whatif.routing.workload import Workload

_Reader = Callable[[Path], "Trace"]

_FIRST_AFTER_SECONDS = 1.0
_LINE_EVERY_SECONDS = 5.0
"""Interval without a terminal."""
_HERE = "◀ the pool"
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
    """Compute what other cache sizes, another router or other options would have done.

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
    if twin.changes:
        if routing.replicas is not None or capacities or plot is not None or len(file) > 1:
            raise fail(
                "--set answers about one recording: leave out --replicas, --capacity and --plot"
            )
        _set(file[0], twin.changes, twin.python, output.is_json)
    elif routing.replicas is not None:
        if plot is not None:
            raise fail("--plot draws the curve of one cache: leave out --replicas")
        _route(file, reader, capacities, routing, output.is_json)
    elif len(file) > 1:
        raise fail("several files are replayed on replicas: give their number, --replicas N")
    else:
        _curve(file[0], reader, capacities, output.is_json, plot)


def _curve(
    file: Path,
    reader: "_Reader",
    capacities: Sequence[int],
    output_json: bool,
    plot: Path | None,
) -> None:
    if plot is not None and (problem := lacking("--plot", "plot")):
        raise fail(problem)
    with _failing_in_one_line(file):
        found = _read(file, reader, capacities)
    if plot is not None:
        _plot(found, file, plot)
    if output_json:
        sys.stdout.write(json.dumps(_document(file, found), indent=2) + "\n")
    else:
        _show(Console(), file, found)


def _route(
    files: Sequence[Path],
    reader: "_Reader",
    capacities: Sequence[int],
    options: RoutingOptions,
    output_json: bool,
) -> None:
    from kvscope.whatif.routing.comparison import compare
    from kvscope.whatif.routing.report import document, show

    with _failing_in_one_line(files[0]):
        workload = _workload(files, reader)
        with _showing_progress("requests replayed") as show_progress:
            found = compare(workload, options, capacities, show_progress)
    if output_json:
        sys.stdout.write(json.dumps(document(files, found), indent=2) + "\n")
    else:
        show(Console(), files, found)


def _set(file: Path, changes: Sequence[str], python: Path | None, output_json: bool) -> None:
    from kvscope.twin.comparison import Scheduler, compare
    from kvscope.twin.own_book import OwnScheduler
    from kvscope.twin.process import Worker
    from kvscope.twin.report import document, show
    from kvscope.twin.traffic import Traffic

    with _failing_in_one_line(file), ExitStack() as stack:
        if not _is_recording(file):
            raise WhatIfError(f"{file}: --set replays a recording; a trace has no steps")

        def scheduler_for(traffic: Traffic) -> Scheduler:
            if python is None:
                return OwnScheduler(traffic)
            return stack.enter_context(closing(Worker(python, traffic)))

        with _showing_progress("replays") as show_progress:
            found = compare(file, changes, scheduler_for, show_progress)
    if output_json:
        sys.stdout.write(json.dumps(document(file, found), indent=2) + "\n")
    else:
        show(Console(), file, found)


@contextmanager
def _failing_in_one_line(file: Path) -> Iterator[None]:
    from kvscope_exporter.recorder.format import RecordingError

    try:
        yield
    except (WhatIfError, RecordingError) as error:
        raise fail(error) from None
    except OSError as error:
        raise fail(f"{error.filename or file}: cannot be read: {error.strerror}") from None
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_SIGNALLED + signal.SIGINT) from None


def _is_recording(file: Path) -> bool:
    """False: it looks like a trace. Raises WhatIfError for neither, or OSError."""
    from kvscope.traces.request import GZIP
    from kvscope_exporter.recorder.format import MAGIC

    if not stat.S_ISREG(file.stat().st_mode):
        raise WhatIfError(f"{file}: not a file that can be read twice: name a trace or a recording")
    with file.open("rb") as content:
        begin = content.read(len(MAGIC))
    if not begin:
        raise WhatIfError(f"{file}: the file is empty")
    if begin != MAGIC and not begin.startswith((b"{", GZIP)):
        raise WhatIfError(
            f"{file}: neither a recording of kvscope, nor a trace, which has a JSON object on each "
            "line"
        )
    return begin == MAGIC


def _read(file: Path, reader: "_Reader", capacities: Sequence[int]) -> Findings:
    """Raises WhatIfError, RecordingError or OSError."""
    if _is_recording(file):
        from kvscope.whatif.recording import curve_of_recording

        with _showing_progress("batches read") as show_progress:
            return curve_of_recording(file, capacities, show_progress)
    from kvscope.whatif.trace import curve_of_trace

    with _showing_progress("requests read") as show_progress, _naming(file):
        return curve_of_trace(reader(file), capacities, show_progress)


def _workload(files: Sequence[Path], reader: "_Reader") -> "Workload":
    """Raises WhatIfError, RecordingError or OSError."""
    kinds = [_is_recording(file) for file in files]
    if all(kinds):
        from kvscope.whatif.routing.recordings import workload_of_recordings

        with _showing_progress("batches read") as show_progress:
            return workload_of_recordings(files, show_progress)
    if len(files) > 1:
        raise WhatIfError("name one trace, or the recordings of several replicas")
    from kvscope.whatif.routing.workload import workload_of_trace

    with _showing_progress("requests read") as show_progress, _naming(files[0]):
        return workload_of_trace(reader(files[0]), show_progress)


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Names the trace in what is wrong with it."""
    from kvscope.traces import TraceError

    try:
        yield
    except WhatIfError as error:
        raise WhatIfError(f"{file}: {error}") from None
    except TraceError as error:
        raise WhatIfError(str(error)) from None


def _plot(found: Findings, file: Path, picture: Path) -> None:
    try:
        save_plot(found, file.name, picture)
    except (OSError, ValueError) as error:
        raise fail(f"cannot write {picture}: {error}") from None


@contextmanager
def _showing_progress(what: str) -> Iterator[Callable[[int], None]]:
    """Progress on standard error: a line on a terminal, else occasional lines.

    Yields a function to be called with the number of `what`.
    """
    console = Console(stderr=True)
    began = time.monotonic()
    if not console.is_terminal:
        yield _print_now_and_then(what, began)
        return
    with console.status("reading") as status:

        def show(count: int) -> None:
            if time.monotonic() - began > _FIRST_AFTER_SECONDS:
                status.update(f"{count:,} {what}")

        yield show


def _print_now_and_then(what: str, began: float) -> Callable[[int], None]:
    next_line = began + _LINE_EVERY_SECONDS

    def show(count: int) -> None:
        nonlocal next_line
        now = time.monotonic()
        if now >= next_line:
            next_line = now + _LINE_EVERY_SECONDS
            with suppress(OSError):  # the curve is good even if its progress cannot be shown
                typer.echo(f"{now - began:.0f} s: {count:,} {what}", err=True)

    return show


def _document(file: Path, found: Findings) -> dict[str, Any]:
    """The whole curve; unknown values are null."""
    pool = found.pool
    return {
        "file": str(file),
        "kind": found.kind,
        "format": found.format,
        "block_tokens": found.block_tokens,
        "lookups": found.lookups,
        "queried_blocks": found.queried_blocks,
        "distinct_blocks": found.distinct_blocks,
        "seconds": found.seconds,
        "pool": None
        if pool is None
        else {
            "usable_blocks": pool.usable_blocks,
            "block_size": pool.block_size,
            "hit_blocks": pool.hit_blocks,
        },
        "verdict": found.verdict,
        "curve": [point._asdict() for point in found.points],
        "lower_bounds": list(found.lower_bounds),
        "doubts": list(found.doubts),
        "not_modelled": list(found.not_modelled),
    }


def _show(console: Console, file: Path, found: Findings) -> None:
    """Show the table, between its subject and its limitations."""
    console.print(Text(printable(_title(file, found)), "bold"))
    if found.points:
        console.print(_table(found))
    if found.verdict is not None:
        console.print(Text(found.verdict, "bold"))
    for doubt in found.doubts:
        console.print(Text(f"Note: {printable(doubt)}.", "yellow"))
    console.print(Text("Not modelled:", "dim"))
    for text in found.not_modelled:
        console.print(Text(f"  - {text}", "dim"))


def _title(file: Path, found: Findings) -> str:
    what = "requests" if found.kind == "trace" else "lookups"
    title = f"{file.name}: {found.lookups:,} {what}, {found.queried_blocks:,} blocks looked up"
    if found.distinct_blocks is not None:
        title += f", {found.distinct_blocks:,} different ones"
    if found.format is not None:
        title += f"\na trace of the dialect {found.format}, blocks of {found.block_tokens} tokens"
    if found.seconds is not None:
        title += f", {found.seconds:,.0f} s"
    if found.pool is not None:
        title += (
            f"\na pool of {found.pool.usable_blocks:,} blocks of {found.pool.block_size} tokens "
            f"found {found.pool.hit_blocks:,} of them"
        )
    return title


def _table(found: Findings) -> Table:
    table = Table()
    for name in ("capacity, blocks", "hit blocks", "queried blocks", "hit ratio"):
        table.add_column(name, justify="right")
    if found.pool is not None:
        table.add_column("of the pool", justify="right")
        table.add_column("note")
    for point in found.points:
        ratio = point.hit_ratio
        bound = "≥ " if point.capacity_blocks in found.lower_bounds else ""
        cells = [
            f"{point.capacity_blocks:,}",
            f"{bound}{point.hit_blocks:,}",
            f"{point.queried_blocks:,}",
            "unknown" if ratio is None else f"{bound}{100 * ratio:.1f} %",
        ]
        if found.pool is not None:
            usable = found.pool.usable_blocks
            cells.append(f"{point.capacity_blocks / usable:.3g}")
            cells.append(_HERE if point.capacity_blocks == usable else "")
        table.add_row(*cells)
    return table
