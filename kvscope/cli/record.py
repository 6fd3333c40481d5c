"""`kvscope rec save`: the events of a running engine in a file."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvscope.cli.interrupts import Stop
from kvscope.options.duration import duration
from kvscope.output import fail
from kvscope_engine.sizing import format_bytes, parse_bytes
from kvscope_events.printable import printable

if TYPE_CHECKING:
    from kvscope_events.wire.subscriber import WireSubscriber
    from kvscope_exporter.recorder.stream_file import StreamFile

DEFAULT_MAX_BYTES = "1GiB"
PATTERN = "/*"
_SILENCE_SECONDS = 5.0
"""Time without a publisher after which a line says so."""
_PROGRESS_SECONDS = 10.0
"""Interval of lines on standard error that show the recording growing."""
_BACKLOG_SECONDS = 1.0
"""Time before the start of the command from which on the summary mentions the backlog."""
_TICK_SECONDS = 0.2
_WRITE_SECONDS = 1.0
"""Interval at which what has come is written: the most that is lost when the command is killed."""


def record(
    endpoint: Annotated[
        str,
        typer.Argument(
            metavar="ENDPOINT", help="ipc:///DIRECTORY/NAME.sock or tcp://127.0.0.1:PORT."
        ),
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that does not exist yet.")],
    seconds: Annotated[
        float | None,
        typer.Option(
            "--duration",
            metavar="DURATION",
            parser=duration(0.1),
            help="Stop after this time. Default: on Ctrl-C.",
        ),
    ] = None,
    max_bytes: Annotated[
        str,
        typer.Option(metavar="BYTES", help="Stop at this file size, for example 500MB or 2GiB."),
    ] = DEFAULT_MAX_BYTES,
) -> None:
    """Record the events of an engine into a file, until Ctrl-C.

    A recording begins with the publisher's backlog, often the last minutes before this command:
    start it right after an incident and the incident is in the file.

    The recording holds names of blocks, never their text. kvscope whatif computes from it what
    another pool would have found. The other commands for recordings read it as well, except
    kvscope alerts backtest: what a sidecar reads beside the events, such as the server's state and
    its GPUs, is not in it.

    Example: kvscope rec save ipc:///run/user/1000/kvscope/qwen.sock qwen.kvsr --duration 10m
    """
    from kvscope_events.wire.endpoint import EndpointError
    from kvscope_events.wire.subscriber import WireSubscriber
    from kvscope_exporter.clock import Clock
    from kvscope_exporter.recorder.stream_file import StreamFile

    try:
        limit = parse_bytes(max_bytes)
    except ValueError as error:
        raise fail(f"--max-bytes: {error}") from None
    if endpoint.endswith(PATTERN):
        raise fail(f"{endpoint}: a recording holds one stream: give one socket, not the folder")
    try:
        subscriber = WireSubscriber(endpoint)
    except EndpointError as error:
        raise fail(error) from None
    try:
        with StreamFile(file, subscriber, limit, Clock()) as recording, Stop() as stop:
            began = time.monotonic()
            _record(subscriber, recording, stop, seconds)
            lasted = time.monotonic() - began
    except FileExistsError:
        raise fail(f"{file}: file exists; choose another name") from None
    except OSError as error:
        raise fail(f"{file}: cannot write: {error.strerror}") from None
    finally:
        subscriber.close()
    if not recording.num_batches:
        why = f"even one batch is larger than {max_bytes}" if recording.full else "nothing came"
        raise fail(f"{endpoint}: {why} in {lasted:.1f} s; nothing was recorded")
    line = (
        f"{file}: {recording.num_batches:,} batches, {format_bytes(recording.num_bytes)}, "
        f"{lasted:.1f} s"
    )
    if recording.full:
        line += f"; stopped at {max_bytes}"
    if recording.missing:
        line += f"; {recording.missing:,} batches are missing"
    if recording.restarts:
        line += f"; the engine restarted {recording.restarts} times"
    earlier = recording.recorded_ns / 1e9 - lasted
    if earlier > _BACKLOG_SECONDS:
        line += f"; began {earlier:,.0f} s earlier, with the publisher's backlog"
    typer.echo(printable(line))


def _record(
    subscriber: "WireSubscriber", recording: "StreamFile", stop: Stop, seconds: float | None
) -> None:
    """Record until a signal, the end of the time, or a full file. Raises OSError."""
    began = time.monotonic()
    silent = True
    next_line = _PROGRESS_SECONDS
    next_write = 0.0
    while not stop.is_set():
        elapsed = time.monotonic() - began
        if seconds is not None and elapsed >= seconds:
            break
        left = _TICK_SECONDS if seconds is None else min(_TICK_SECONDS, seconds - elapsed)
        subscriber.wait(left)
        _take_all(subscriber, recording)
        if elapsed >= next_write:
            next_write = elapsed + _WRITE_SECONDS
            recording.write()
        if recording.full:
            return
        if silent and elapsed > _SILENCE_SECONDS and not recording.num_batches:
            silent = False
            typer.echo(f"kvscope: no data from {subscriber.endpoint} yet", err=True)
        if elapsed >= next_line and recording.num_batches:
            next_line += _PROGRESS_SECONDS
            size = format_bytes(recording.num_bytes)
            typer.echo(f"{elapsed:.0f} s: {recording.num_batches:,} batches, {size}", err=True)
    _take_all(subscriber, recording)


def _take_all(subscriber: "WireSubscriber", recording: "StreamFile") -> None:
    """Keep what has arrived, unless the file is full. Raises OSError."""
    while (taken := subscriber.take()) is not None and recording.add(*taken):
        pass
