"""`kvscope rec export`: a recording in formats that other tools read."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from kvscope.options.generated import with_options
from kvscope.output import fail
from kvscope_engine.option import option
from kvscope_events.printable import printable
from kvscope_exporter.extras import lacking

if TYPE_CHECKING:
    from kvscope_exporter.recorder.reader import RecordingFile

_MIN_STEP = 0.1
_MAX_LABELS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """The files to write, and their contents."""

    openmetrics: Path | None = option(
        None,
        "Write the pages as OpenMetrics with timestamps: `promtool tsdb create-blocks-from "
        "openmetrics OUT DIR` makes blocks for a Prometheus.",
        "OUT",
    )
    perfetto: Path | None = option(
        None,
        "Write a trace for ui.perfetto.dev: a track for each sequence, counters, evictions, and "
        "arrows from preempted sequences to those that took their blocks.",
        "OUT",
    )
    parquet: Path | None = option(
        None,
        "Write tables of steps, requests, block lives and preemptions as Parquet. Needs the extra "
        "`query`, DuckDB.",
        "DIR",
    )
    html: Path | None = option(
        None,
        "Write one file to attach to a ticket: the live page with the recording inside, at 128 "
        "moments and more. It opens in a browser, and loads nothing from elsewhere.",
        "OUT",
    )
    at: str | None = option(
        None,
        "Moment at which the page of --html opens, written as for `kvscope why`. Default: two "
        "minutes after the last mark.",
        "TIME",
    )
    step: float = option(
        15.0, "Time between two pages of --openmetrics.", "DURATION", least=_MIN_STEP
    )
    label: tuple[str, ...] = option(
        (),
        "Label of every series of --openmetrics, as a Prometheus adds. May be repeated. Default: "
        "job=kvscope and instance=SERVER, which boards and rules expect.",
        "NAME=VALUE",
    )


@with_options
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A recording, *.kvsr.")],
    options: ExportOptions = ExportOptions(),
) -> None:
    """Write a recording in formats that other tools read.

    With OpenMetrics a Prometheus shows an incident of last week, on the same boards and with the
    same rules as if it had scraped the server then.

    Example: kvscope rec export incident.kvsr --openmetrics incident.om --step 5

    Example: kvscope rec export incident.kvsr --perfetto incident.pftrace --html incident.html
    """
    from kvscope_exporter.recorder.format import RecordingError
    from kvscope_exporter.recorder.reader import RecordingFile

    if not (options.openmetrics or options.perfetto or options.parquet or options.html):
        raise fail("choose at least one of --openmetrics, --perfetto, --parquet and --html")
    for flag, given in (("--perfetto", options.perfetto), ("--parquet", options.parquet)):
        if given is not None and (problem := lacking(flag, "export")):
            raise fail(problem)
    labels = _labels(options.label)
    try:
        recording = RecordingFile(file)
    except RecordingError as error:
        raise fail(error) from None
    if options.openmetrics is not None:
        _write_pages(recording, options.openmetrics, labels, round(options.step * 1e9))
    if options.perfetto is not None:
        from kvscope.export.perfetto import write_trace

        _write("--perfetto", options.perfetto, lambda out: write_trace(recording, out))
    if options.parquet is not None:
        _write_tables(recording, options.parquet)
    if options.html is not None:
        _write_page(recording, options.html, options.at)
    if recording.problem is not None:
        typer.echo(printable(f"kvscope: {file}: {recording.problem}"), err=True)


def _write_pages(
    recording: "RecordingFile", path: Path, labels: dict[str, str], step_ns: int
) -> None:
    from kvscope.replay.openmetrics import Pages, TooManyError
    from kvscope_exporter.replay.playback import Playback

    pages = Pages({"job": "kvscope", "instance": recording.opened.server, **labels})
    try:
        _follow(pages.read(Playback(recording), step_ns))
    except TooManyError as error:
        raise fail(f"{recording.path}: {error}") from None
    if not pages.num_samples:
        raise fail("the recording is shorter than --step: nothing to write")

    def write(out: BinaryIO) -> Iterator[float]:
        yield 1.0
        out.write(pages.text())

    _write("--openmetrics", path, write, f"{pages.num_samples:,} samples")


def _write_tables(recording: "RecordingFile", folder: Path) -> None:
    from kvscope.export.parquet import TABLES, write_tables

    try:
        _follow(write_tables(recording, folder))
    except OSError as error:
        raise fail(f"--parquet {folder}: {error.strerror}") from None
    names = ", ".join(f"{name}.parquet" for name in TABLES.values())
    typer.echo(printable(f"{folder}: {names}"))


def _write_page(recording: "RecordingFile", path: Path, at: str | None) -> None:
    from kvscope.export.html import write_html
    from kvscope.export.moments import TooLargeError
    from kvscope.replay.moment import moment_asked
    from kvscope_exporter.replay.playback import index_of

    index = index_of(recording)
    marks = [mark.wall_ns for mark in index.marks]
    try:
        moment = moment_asked(at, recording.begins_ns, recording.ends_ns, marks)
    except ValueError as error:
        raise fail(f"--at: {error}") from None
    try:
        _write("--html", path, lambda out: write_html(recording, index, moment, out))
    except TooLargeError as error:
        raise fail(f"--html: {error}") from None


def _write(
    option: str, path: Path, write: Callable[[BinaryIO], Iterator[float]], what: str | None = None
) -> None:
    """A file that is there only once it is whole, and private: names of blocks and tenants are in
    it, by which a guess can be confirmed. what: printed, by default its size."""
    from kvscope_exporter.files.private import create_private

    part = path.with_name(f"{path.name}.part")
    try:
        part.unlink(missing_ok=True)  # of an export that was killed
        with BufferedWriter(create_private(part)) as out:
            _follow(write(out))
            size = out.tell()
        part.replace(path)
    except OSError as error:
        raise fail(f"{option} {path}: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
    typer.echo(printable(f"{path}: {what or f'{size:,} bytes'}"))


def _follow(shares: Iterator[float]) -> None:
    """Work through, with the share that is done on a terminal."""
    shown = -1
    for share in shares:
        if sys.stderr.isatty() and int(share * 20) > shown:
            shown = int(share * 20)
            typer.echo(f"\r{share:4.0%}", err=True, nl=False)
    if shown >= 0:
        typer.echo("\r    \r", err=True, nl=False)


def _labels(given: Sequence[str]) -> dict[str, str]:
    """Raises typer.Exit(2)."""
    labels = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name.isidentifier() or name.startswith("__"):
            raise fail(f"--label {text!r}: expected NAME=VALUE, such as cluster=eu-1")
        labels[name] = value
    if len(labels) > _MAX_LABELS:
        raise fail(f"--label: at most {_MAX_LABELS}")
    return labels
