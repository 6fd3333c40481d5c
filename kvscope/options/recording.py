"""`--keep`, `--keep-bytes`, `--record-dir`: the flight recorder."""

import errno
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import typer

from kvscope.options.duration import seconds_of
from kvscope.output import fail
from kvscope_engine.option import option
from kvscope_engine.sizing import parse_bytes
from kvscope_events.printable import printable

if TYPE_CHECKING:
    from kvscope_exporter.recorder.flight import Flight

MIN_BYTES = 1 << 20
_OF_THE_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE, errno.ETIMEDOUT}
"""Errors of a disk, for which no server is kept from starting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingOptions:
    """Limits of the flight recorder, and its folder."""

    PANEL: ClassVar[str] = "Recording"
    keep: str = option(
        "15m",
        "Keep the events of this long, for kvscope rec play: 90s, 15m, 2h; 0: record nothing.",
        "DURATION",
    )
    keep_bytes: str = option("64MiB", "Keep at most this much of them, compressed.", "BYTES")
    record_dir: Path | None = option(
        None,
        "Folder for them, so that they survive this process. Default: they stay in memory.",
        "DIR",
    )

    def __post_init__(self) -> None:
        if not self.seconds:
            if self.record_dir is not None:
                raise ValueError("--record-dir has nothing to hold with --keep 0: drop one")
        elif not 10 <= self.seconds <= 31 * 86400:
            raise ValueError(f"--keep {self.keep}: expected 10s to 31d, or 0")
        if self.num_bytes < MIN_BYTES:
            raise ValueError(
                f"--keep-bytes {self.keep_bytes}: expected at least 1MiB; --keep 0 records nothing"
            )

    @property
    def seconds(self) -> float:
        """0: nothing is recorded."""
        try:
            return seconds_of(self.keep)
        except ValueError as error:
            raise ValueError(f"--keep {error}") from None

    @property
    def num_bytes(self) -> int:
        try:
            return parse_bytes(self.keep_bytes)
        except ValueError as error:
            raise ValueError(f"--keep-bytes: {error}") from None


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


def flight_of(options: RecordingOptions) -> "Flight | None":
    """The flight recorder, not yet running; None: nothing is recorded. Raises typer.Exit(2)."""
    if not options.seconds:
        return None
    from kvscope_exporter.clock import Clock
    from kvscope_exporter.recorder.flight import Flight
    from kvscope_exporter.recorder.writer import Limits

    folder = None if options.record_dir is None else _prepared(options.record_dir)
    limits = Limits(keep_ns=round(options.seconds * 1e9), keep_bytes=options.num_bytes)
    settings = {"keep_seconds": f"{options.seconds:g}", "keep_bytes": str(options.num_bytes)}
    return Flight(limits, folder, settings, Clock())


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
