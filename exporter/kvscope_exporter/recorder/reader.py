"""Reads a recording: its records in order, up to its end or to where it was cut, and its gaps.

Its time is that of the recorder's monotonic clock, as the wall clock showed it at the end: a wall
clock that was set meanwhile, forward or back, neither stretches a recording nor folds it.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from kvscope_exporter.files.foreign import open_regular
from kvscope_exporter.recorder import records
from kvscope_exporter.recorder.format import BEGINS, ENDS, Chunk, RecordingError, read_chunks
from kvscope_exporter.recorder.gaps import Gap, told
from kvscope_exporter.recorder.records import Mark, PageRecord, Record, SegmentStart
from kvscope_exporter.recorder.writer import STEP_NS

_UNREADABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)


class _Part(NamedTuple):
    """A segment, as it begins."""

    chunk: int
    """Place of its first chunk."""
    opened: SegmentStart

    @property
    def ahead_ns(self) -> int:
        return self.opened.wall_ns - self.opened.monotonic_ns


class RecordingFile:
    """A file with segments of one server. Construction raises RecordingError.

    The chunks' headers and beginnings of segments are read at once, the rest when it is asked for.
    """

    def __init__(self, path: Path, opener: Callable[[Path], BinaryIO] = open_regular) -> None:
        """opener: raises OSError for a file that is not to be read."""
        self.path = path
        self.chunks: list[Chunk] = []
        self._open = opener
        self._cut: str | None = None
        """The reason why it ends before its file, or without its end mark."""
        parts: list[_Part] = []
        try:
            with opener(path) as file:
                for chunk in read_chunks(file):
                    self.chunks.append(chunk)
                parts += self._parts(file)
        except OSError as error:
            raise RecordingError(f"{path}: cannot be read: {error.strerror or error}") from None
        except ValueError as error:
            raise RecordingError(f"{path}: cannot be read: {error}") from None
        except RecordingError as error:
            if not self.chunks:
                raise RecordingError(f"{path}: {error}") from None
            self._cut = str(error)
            with opener(path) as file:
                parts += self._parts(file)
        if not self.chunks:
            raise RecordingError(f"{path}: cannot be read: it is empty")
        if not parts or parts[0].chunk:
            reason = self._cut or "it does not begin with the beginning of a segment"
            raise RecordingError(f"{path}: {reason}")
        if self._cut is None and not self.chunks[-1].flags & ENDS:
            self._cut = "the recorder was cut off: its last second may be missing"
        self.opened = parts[0].opened
        monotonic = [part.opened.monotonic_ns for part in parts]
        self._ahead_ns = parts[-1].ahead_ns if monotonic == sorted(monotonic) else None
        """From the recorder's monotonic clock to the recording's time; None: it has several."""
        self.was_set = any(abs(self._shift(part)) for part in parts)
        """Whether the wall clock was set while it was recorded."""
        self.begins_ns = self.chunks[0].first_ns + self._shift(parts[0])
        """Time of the first record."""
        self.ends_ns = self._end(parts)
        """Time of the last record."""
        self.gaps = [*self._gaps(parts)]

    @property
    def problem(self) -> str | None:
        """The parts that it lacks; None: it is whole."""
        return "; ".join(filter(None, (self._cut, told(self.gaps)))) or None

    def ahead_ns(self, opened: SegmentStart) -> int:
        """From the monotonic clock of a segment to the recording's time."""
        return opened.wall_ns - opened.monotonic_ns if self._ahead_ns is None else self._ahead_ns

    def at_ns(self, record: PageRecord | Mark) -> int:
        """Its moment: the wall clock's, unless that was set before the recording ended."""
        if self._ahead_ns is None:
            return record.wall_ns
        at_ns = record.time_ns + self._ahead_ns
        return record.wall_ns if abs(record.wall_ns - at_ns) < STEP_NS else at_ns

    def records(self) -> Iterator[Record]:
        """Every record; a damaged chunk ends it, with `problem` set."""
        try:
            with self._open(self.path) as file:
                for chunk in self.chunks:
                    file.seek(chunk.offset)
                    for encoded in chunk.records(file.read(chunk.stored_bytes)):
                        yield self._placed(records.decode(encoded))
        except RecordingError as error:
            self._cut = str(error)
        except OSError as error:
            self._cut = f"the file can no longer be read: {error.strerror}"
        except _UNREADABLE as error:
            self._cut = f"byte {chunk.offset}: a record that cannot be read: {error}"

    def _placed(self, record: Record) -> Record:
        """A mark has the recording's time; a page keeps what the wall clock said."""
        if isinstance(record, Mark):
            return msgspec.structs.replace(record, wall_ns=self.at_ns(record))
        return record

    def _parts(self, file: BinaryIO) -> Iterator[_Part]:
        """The beginnings of segments, up to one that cannot be read."""
        for place, chunk in enumerate(self.chunks):
            if not chunk.flags & BEGINS:
                continue
            file.seek(chunk.offset)
            try:
                first = next(chunk.records(file.read(chunk.stored_bytes)), b"")
                opened = records.decode(first)
            except RecordingError as error:
                self._cut = str(error)
                return
            except _UNREADABLE as error:
                self._cut = f"byte {chunk.offset}: a record that cannot be read: {error}"
                return
            if not isinstance(opened, SegmentStart):
                self._cut = f"byte {chunk.offset}: it does not begin as a segment"
                return
            yield _Part(place, opened)

    def _shift(self, part: _Part) -> int:
        """From the times that the chunks of a segment state to the recording's."""
        shift = self.ahead_ns(part.opened) - part.ahead_ns
        return shift if abs(shift) >= STEP_NS else 0

    def _end(self, parts: Sequence[_Part]) -> int:
        """The latest time that a chunk states: one of an older version states the wall clock's."""
        ends = [part.chunk for part in parts[1:]] + [len(self.chunks)]
        return max(
            chunk.last_ns + self._shift(part)
            for part, end in zip(parts, ends, strict=True)
            for chunk in self.chunks[part.chunk : end]
        )

    def _gaps(self, parts: Sequence[_Part]) -> Iterator[Gap]:
        for before, part in pairwise(parts):
            last, opened = self.chunks[part.chunk - 1], part.opened
            begins_ns = last.last_ns + self._shift(before)
            ends_ns = self.chunks[part.chunk].first_ns + self._shift(part)
            missing = opened.missing
            is_same = opened.recorder == before.opened.recorder
            if missing is not None:
                begins_ns = missing.since_ns + self.ahead_ns(opened)
                yield Gap(begins_ns, ends_ns, missing.records, missing.reason)
            elif not last.flags & ENDS:
                yield Gap(begins_ns, ends_ns, 0, "it could not be written, or was damaged")
            elif is_same and opened.number > before.opened.number + 1:
                yield Gap(begins_ns, ends_ns, 0, "a part of it was removed, or was damaged")
