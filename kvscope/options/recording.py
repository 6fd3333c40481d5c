"""`--keep`, `--keep-bytes`, `--record-dir`: the flight recorder."""

import errno
import os
import re
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvscope.output import fail
from kvscope_engine.sizing import parse_bytes
from kvscope_events.printable import printable

if TYPE_CHECKING:
    from kvscope_exporter.recorder.flight import Flight

DEFAULT_KEEP = "15m"
DEFAULT_BYTES = "64MiB"
MIN_BYTES = 1 << 20
_OF_THE_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE, errno.ETIMEDOUT}
"""Errors of a disk, for which no server is kept from starting."""
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
    return RecordingConfig(seconds, size, None if folder is None else _prepared(folder))


def _prepared(folder: Path) -> Path | None:
    """The folder, if it is ours alone; None, with a line, if the disk has no room for it. Raises
    typer.Exit(2) for one that another has to be given for."""
    place = printable(f"--record-dir {folder}")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        link, found = folder.lstat(), folder.stat()
        is_read_only = bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    except OSError as error:
        if error.errno not in _OF_THE_DISK:
            raise fail(f"{place}: {error.strerror}") from None
        text = f"kvscope: {place}: {error.strerror}: the recordings stay in memory"
        typer.echo(text, err=True)
        return None
    ours = (os.geteuid(), 0)
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise fail(
            f"{place}: others may write to it (mode {stat.S_IMODE(found.st_mode):04o}): give a "
            f"folder with mode 0700, such as {printable(str(folder / 'kvscope'))}"
        )
    if found.st_uid not in ours or link.st_uid not in ours:
        owner = link.st_uid if found.st_uid in ours else found.st_uid
        raise fail(
            f"{place}: it belongs to uid {owner}, we are {os.geteuid()}: give a folder of your own"
        )
    if is_read_only:  # as after an error of the disk; the recorder goes on when it is writable
        typer.echo(f"kvscope: {place}: the disk is read-only: nothing is recorded yet", err=True)
    elif not os.access(folder, os.W_OK | os.X_OK):
        raise fail(f"{place}: this user cannot write to it")
    return folder


def flight_of(config: RecordingConfig | None) -> "Flight | None":
    """The flight recorder, not yet running."""
    if config is None:
        return None
    from kvscope_exporter.clock import Clock
    from kvscope_exporter.recorder.flight import Flight
    from kvscope_exporter.recorder.writer import Limits

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
