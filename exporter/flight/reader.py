"""Reads a recording: its records in order, up to its end or to where it was cut."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from exporter.flight import records
from exporter.flight.format import BEGINS, ENDS, Chunk, RecordingError, read_chunks
from exporter.flight.records import Opened, Record
from exporter.foreign_file import open_regular


class RecordingFile:
    """A file with segments of one server. Construction raises RecordingError.

    The chunks' headers are read at once, their content when it is asked for.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem: str | None = None
        """The reason why it ends before its file, or without its end mark; None: it is whole."""
        self.chunks: list[Chunk] = []
        try:
            with open_regular(path) as file:
                for chunk in read_chunks(file):
                    self.chunks.append(chunk)
        except OSError as error:
            raise RecordingError(f"{path}: cannot be read: {error.strerror or error}") from None
        except ValueError as error:
            raise RecordingError(f"{path}: cannot be read: {error}") from None
        except RecordingError as error:
            if not self.chunks:
                raise RecordingError(f"{path}: {error}") from None
            self.problem = str(error)
        if not self.chunks:
            raise RecordingError(f"{path}: cannot be read: it is empty")
        if self.problem is None and not self.chunks[-1].flags & ENDS:
            self.problem = "the recorder was cut off: its last second may be missing"
        self.opened = self._opened()

    @property
    def begins_ns(self) -> int:
        """Wall clock of the first record."""
        return self.chunks[0].first_ns

    @property
    def ends_ns(self) -> int:
        """Wall clock of the last record."""
        return self.chunks[-1].last_ns

    def records(self) -> Iterator[Record]:
        """Every record; a damaged chunk ends it, with `problem` set."""
        try:
            with open_regular(self.path) as file:
                for chunk in self.chunks:
                    file.seek(chunk.offset)
                    for encoded in chunk.records(file.read(chunk.stored_bytes)):
                        yield records.decode(encoded)
        except RecordingError as error:
            self.problem = str(error)
        except OSError as error:
            self.problem = f"the file can no longer be read: {error.strerror}"
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
            self.problem = f"byte {chunk.offset}: a record that cannot be read: {error}"

    def _opened(self) -> Opened:
        for record in self.records():
            if isinstance(record, Opened) and self.chunks[0].flags & BEGINS:
                return record
            break
        reason = self.problem or "it does not begin with the beginning of a segment"
        raise RecordingError(f"{self.path}: {reason}")
