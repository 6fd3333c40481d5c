"""`kvscope export`: a recording in a format that other tools read."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvscope.output import fail
from kvscope_events.printable import printable

if TYPE_CHECKING:
    from kvscope.replaying.openmetrics import Pages

_MIN_STEP = 0.1
_MAX_LABELS = 8


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A recording, *.kvsr.")],
    openmetrics: Annotated[
        Path,
        typer.Option(
            metavar="OUT",
            help="Write the pages as OpenMetrics with timestamps: `promtool tsdb "
            "create-blocks-from openmetrics OUT DIR` makes blocks for a Prometheus.",
        ),
    ],
    step: Annotated[
        float, typer.Option(metavar="SECONDS", min=_MIN_STEP, help="Time between two pages.")
    ] = 15.0,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Label of every series, as a Prometheus adds. May be repeated. Default: "
            "job=kvscope and instance=SERVER, which boards and rules expect.",
        ),
    ] = None,
) -> None:
    """Write a recording in a format that other tools read.

    With OpenMetrics a Prometheus shows an incident of last week, on the same boards and with the
    same rules as if it had scraped the server then.

    Example: kvscope export incident.kvsr --openmetrics incident.om --step 5
    """
    from exporter.flight.format import RecordingError
    from exporter.flight.reader import RecordingFile
    from exporter.playback.playback import Playback
    from kvscope.replaying.openmetrics import Pages, TooManyError

    try:
        playback = Playback(RecordingFile(file))
    except RecordingError as error:
        raise fail(error) from None
    if playback.file.problem is not None:
        typer.echo(f"kvscope: {file}: {playback.file.problem}", err=True)
    labels = {"job": "kvscope", "instance": playback.file.opened.server, **_labels(label or [])}
    pages = Pages(labels)
    shown = -1
    try:
        for share in pages.read(playback, round(step * 1e9)):
            if sys.stderr.isatty() and int(share * 20) > shown:
                shown = int(share * 20)
                typer.echo(f"\r{share:4.0%}", err=True, nl=False)
    except TooManyError as error:
        raise fail(f"{file}: {error}") from None
    if shown >= 0:
        typer.echo("\r    \r", err=True, nl=False)
    _write(pages, openmetrics)
    typer.echo(printable(f"{openmetrics}: {pages.num_samples:,} samples"))


def _write(pages: "Pages", path: Path) -> None:
    if not pages.num_samples:
        raise fail("the recording is shorter than --step: nothing to write")
    try:
        path.write_bytes(pages.text())
    except OSError as error:
        raise fail(f"--openmetrics {path}: {error.strerror}") from None


def _labels(given: list[str]) -> dict[str, str]:
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
