"""Saved recordings: whole files under names of their own, or what is in memory.

A file is written beside its name, locked, and gets the name when it is whole; no other is replaced,
also not by a second process that saves in the same second.
"""

import logging
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from errno import EEXIST
from io import FileIO
from pathlib import Path

from kvscope_events.printable import quoted
from kvscope_exporter.files.private import append_whole, create_private, is_removed, lock, open_own
from kvscope_exporter.recorder.ring import SUFFIX, Segment, chunks_of

logger = logging.getLogger(__name__)

PREFIX = "saved-"
PART = ".part"
"""Ends the name of a file that is not whole yet."""
_PORTION_BYTES = 1 << 20
_TRIES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRecording:
    """A recording that was saved."""

    name: str
    server: str
    trigger: str
    text: str
    saved_ns: int
    """Wall clock."""
    num_bytes: int
    problem: str | None = None
    """The parts that it lacks; None: nothing, as far as is known."""
    path: Path | None = None
    """None: it is not one file."""
    segments: tuple[Segment, ...] = ()
    """In memory; empty if it is in files."""
    left: tuple[Path, ...] = ()
    """Segments of a killed process that could not be put together."""
    lock: int | None = None
    """An open file that keeps other processes from those."""

    def read(self) -> Iterator[bytes]:
        """Its content, in parts of any size. Raises OSError."""
        if self.path is not None:
            with open_own(self.path) as file:
                while portion := file.read(_PORTION_BYTES):
                    yield portion
        for path in self.left:
            yield from chunks_of(path)
        for segment in self.segments:
            yield from segment.chunks()

    def forget(self) -> None:
        """Remove its files. One that cannot be removed, as on a read-only disk, stays."""
        for path in (*self.left, *(() if self.path is None else (self.path,))):
            with suppress(OSError):
                path.unlink()
        if self.lock is not None:
            os.close(self.lock)


def prefix_of(server: str) -> str:
    """The server's name as a part of a file's."""
    return re.sub(r"[^A-Za-z0-9_.]", "_", server)[:64]


def stamp_of(wall_ns: int) -> str:
    return datetime.fromtimestamp(wall_ns / 1e9, UTC).strftime("%Y%m%dT%H%M%S")


def names(server: str, wall_ns: int, trigger: str) -> Iterator[str]:
    """Names for a recording, in the order in which they are tried. server: by `prefix_of`."""
    for number in range(1, _TRIES):
        again = "" if number == 1 else f"_{number}"
        yield f"{server}-{stamp_of(wall_ns)}{again}-{trigger}{SUFFIX}"


def write_new(folder: Path, tried: Iterable[str], content: Iterator[bytes]) -> Path | None:
    """A new file under the first name that is free, there only once it is whole; None: there was no
    content. Raises OSError, and leaves nothing then."""
    for name in tried:
        path = folder / f"{PREFIX}{name}"
        part = path.with_suffix(PART)
        try:
            file = create_private(part)
        except FileExistsError:
            continue
        with file:
            # A process that finds a part without a lock removes it: its process was killed.
            with suppress(OSError):
                if not lock(file) or is_removed(file):
                    continue
            if not os.path.lexists(path):
                return _filled(file, part, path, content)
            part.unlink(missing_ok=True)
    raise FileExistsError(EEXIST, "every name for it is taken", str(folder))


def _filled(file: FileIO, part: Path, path: Path, content: Iterator[bytes]) -> Path | None:
    size = 0
    try:
        for portion in content:
            append_whole(file, portion, size)
            size += len(portion)
        if size:
            part.rename(path)
            return path
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    part.unlink(missing_ok=True)
    return None


def kept_chunks(segments: Iterable[Segment]) -> Iterator[bytes]:
    """All that can be read of segments; a file that was removed or is damaged is a gap."""
    for segment in segments:
        try:
            yield from segment.chunks()
        except OSError as error:
            place = quoted(str(segment.path))
            logger.error("a part of the recording is missing: %s: %s", place, error.strerror)
