"""`kvscope whatif`: hits of caches of other sizes, from a trace or a recording."""

import json
import signal
import stat
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kvscope.output import EXIT_SIGNALLED, fail
from kvscope.whatif.findings import Findings, WhatIfError
from kvscope.whatif.view import document, show, showing_progress
from kvscope_events.wire.endpoint import EndpointError
from kvscope_events.wire.frame import MAGIC


def whatif(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A trace in Mooncake's format (a JSON object a line, with hash_ids), or a "
            "recording of kvscope record.",
        ),
    ],
    capacity: Annotated[
        list[int] | None,
        typer.Option(
            metavar="BLOCKS",
            help="A capacity to compute, in blocks; may be repeated. Default: about ten up to the "
            "number of different blocks, or up to four times the recorded pool.",
        ),
    ] = None,
    output_json: Annotated[bool, typer.Option("--json", help="Print the curve as JSON.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the curve to a .png, .svg or .pdf as well."),
    ] = None,
) -> None:
    """Compute the hit rate of a prefix cache of any capacity.

    One pass over a trace or a recording gives every capacity at once.

    Example: kvscope whatif conversation_trace.jsonl --capacity 1000 --capacity 50000

    Example: kvscope whatif qwen.kvsf --plot curve.png

    docs/guides/whatif.md says how to read the curve, and what is not in it.
    """
    capacities = capacity or []
    for blocks in capacities:
        if blocks < 1:
            raise fail(f"--capacity {blocks}: a cache has at least one block")
    if plot is not None and find_spec("matplotlib") is None:
        raise fail("--plot needs matplotlib: pip install '.[plot]' in a checkout of kvscope")
    try:
        found = _read(file, capacities)
    except (WhatIfError, EndpointError) as error:
        raise fail(error) from None
    except OSError as error:
        raise fail(f"{file}: cannot be read: {error.strerror}") from None
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_SIGNALLED + signal.SIGINT) from None
    if plot is not None:
        _plot(found, file, plot)
    if output_json:
        sys.stdout.write(json.dumps(document(file, found), indent=2) + "\n")
    else:
        show(Console(), file, found)


def _read(file: Path, capacities: Sequence[int]) -> Findings:
    """Raises WhatIfError, EndpointError or OSError."""
    if not stat.S_ISREG(file.stat().st_mode):
        raise WhatIfError(f"{file}: not a file that can be read twice: name a trace or a recording")
    with file.open("rb") as content:
        begin = content.read(len(MAGIC))
    if not begin:
        raise WhatIfError(f"{file}: the file is empty")
    if begin == MAGIC:
        from kvscope.whatif.recording import curve_of_recording

        with showing_progress("batches") as show_progress:
            return curve_of_recording(file, capacities, show_progress)
    if not begin.startswith(b"{"):
        raise WhatIfError(
            f"{file}: neither a recording of kvscope record, nor a trace in Mooncake's format, "
            "which has a JSON object on each line"
        )
    return _read_trace(file, capacities)


def _read_trace(file: Path, capacities: Sequence[int]) -> Findings:
    from kvscope.mooncake import TraceError, read_trace
    from kvscope.whatif.trace import curve_of_trace

    def paths() -> Iterator[Sequence[int]]:
        for request in read_trace(file):
            yield request.hash_ids

    with showing_progress("requests") as show_progress:
        try:
            return curve_of_trace(paths(), capacities, show_progress)
        except WhatIfError as error:
            raise WhatIfError(f"{file}: {error}") from None
        except TraceError as error:
            raise WhatIfError(str(error)) from None


def _plot(found: Findings, file: Path, picture: Path) -> None:
    from kvscope.whatif.plot import save_plot

    try:
        save_plot(found, file.name, picture)
    except (OSError, ValueError) as error:
        raise fail(f"cannot write {picture}: {error}") from None
