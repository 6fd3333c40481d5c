"""`--keep`, `--keep-bytes`, `--record-dir`: the flight recorder."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.sizing import parse_bytes
from kvscope.output import fail

if TYPE_CHECKING:
    from exporter.flight.flight import Flight

DEFAULT_KEEP = "15m"
DEFAULT_BYTES = "64MiB"
MIN_BYTES = 1 << 20
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

Keep = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help="Keep the events of this long, for kvscope replay: 90s, 15m, 2h; 0: record nothing.",
    ),
]
KeepBytes = Annotated[
    str,
    typer.Option(metavar="BYTES", help="Keep at most this much of them, compressed."),
]
RecordDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder for them, so that they survive this process. Default: they stay in memory.",
    ),
]


@dataclass(frozen=True, slots=True)
class RecordingConfig:
    """Limits of the flight recorder, and its folder."""

    keep_seconds: float
    keep_bytes: int
    folder: Path | None


def recording_of(keep: str, keep_bytes: str, folder: Path | None) -> RecordingConfig | None:
    """None: nothing is recorded. Raises typer.Exit(2)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", keep)
    if match is None:
        raise fail(f"--keep {keep!r}: expected a time such as 90s, 15m or 2h")
    number, unit = match.groups()
    seconds = float(number) * _UNITS[unit or "s"]
    if not seconds:
        if folder is not None:
            raise fail("--record-dir has nothing to hold with --keep 0: drop one")
        return None
    if not 10 <= seconds <= 31 * 86400:
        raise fail(f"--keep {keep}: expected 10s to 31d, or 0")
    try:
        size = parse_bytes(keep_bytes)
    except ValueError as error:
        raise fail(f"--keep-bytes: {error}") from None
    if size < MIN_BYTES:
        raise fail(f"--keep-bytes {keep_bytes}: expected at least 1MiB; --keep 0 records nothing")
    if folder is not None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise fail(f"--record-dir {folder}: {error.strerror}") from None
        if not os.access(folder, os.W_OK | os.X_OK):
            raise fail(f"--record-dir {folder}: this user cannot write to it")
    return RecordingConfig(seconds, size, folder)


def flight_of(config: RecordingConfig | None) -> "Flight | None":
    """The flight recorder, not yet running."""
    if config is None:
        return None
    from exporter.clock import Clock
    from exporter.flight.flight import Flight
    from exporter.flight.recorder import Limits

    limits = Limits(keep_ns=round(config.keep_seconds * 1e9), keep_bytes=config.keep_bytes)
    settings = {"keep_seconds": f"{config.keep_seconds:g}", "keep_bytes": str(config.keep_bytes)}
    return Flight(limits, config.folder, settings, Clock())


@contextmanager
def in_flight(flight: "Flight | None", *, by_signal: bool = True) -> Iterator[None]:
    """Recording inside the block. by_signal: SIGUSR2 saves what is kept; for the main thread."""
    if flight is None:
        yield
        return
    if not by_signal:
        with flight.running():
            yield
        return
    previous = signal.signal(signal.SIGUSR2, lambda number, frame: flight.request())
    try:
        with flight.running():
            yield
    finally:
        signal.signal(signal.SIGUSR2, previous)
