"""The batches of a recording, stream by stream, with the number of those that are missing."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kvscope_events.events import Batch
from kvscope_events.wire.frame import FrameError, decode_batch
from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.recorder.records import (
    Entry,
    SegmentStart,
    SessionStart,
    SourceRecord,
    StreamBatch,
    StreamGap,
    StreamStart,
)


class Stream:
    """A stream, as far as it has been read."""

    def __init__(self, position: int) -> None:
        """position: its entries before the recording."""
        self.run = 0
        """Producers before the present one: another was started in its place."""
        self._position = position
        self._repeated = 0
        self._next_seq: int | None = None
        self._is_behind = False

    def enter(self, position: int) -> None:
        """A segment begins at this entry, which may have been read before."""
        self._repeated = max(0, self._position - position)
        self._is_behind |= position > self._position
        self._position = max(position, self._position)

    def is_repeated(self) -> bool:
        """Pass an entry; whether it has been read before."""
        if self._repeated:
            self._repeated -= 1
            return True
        self._position += 1
        return False

    def renew(self) -> None:
        self.run += self._next_seq is not None
        self._next_seq, self._is_behind = None, False

    def lose(self) -> None:
        self._is_behind = True

    def lost_before(self, batch: Batch) -> int:
        """Batches missing before this one; nothing counts as lost before the first."""
        expected, self._next_seq = self._next_seq, batch.seq + 1
        is_behind, self._is_behind = self._is_behind, False
        return 0 if expected is None else max(int(is_behind), batch.seq - expected)


class Taken(NamedTuple):
    stream: Stream
    batch: Batch
    lost: int
    """Batches missing just before it."""


class Batches:
    """Batches of engines, workers and front ends; those of streams of content alone are left out.

    Construction raises RecordingError.
    """

    def __init__(self, path: Path) -> None:
        self.undecoded = 0
        """Batches or events that could not be read."""
        self.repeated = 0
        """Batches that are in the file more than once, as in one combined from several."""
        self._file = RecordingFile(path)

    @property
    def problem(self) -> str | None:
        """The parts that the recording lacks; None: it is whole, as far as it has been read."""
        return self._file.problem

    def __iter__(self) -> Iterator[Taken]:
        streams: dict[tuple[str, int], Stream] = {}
        recorder = ""
        for record in self._file.records():
            match record:
                case SegmentStart():
                    recorder = record.recorder
                case StreamStart(number, kind) if kind != "kv_events":
                    streams.setdefault((recorder, number), Stream(record.index)).enter(record.index)
                case (
                    StreamBatch(number)
                    | StreamGap(number)
                    | SessionStart(number)
                    | SourceRecord(number)
                ):
                    stream = streams.get((recorder, number))
                    if stream is not None:
                        yield from self._taken(stream, record)

    def _taken(self, stream: Stream, entry: Entry) -> Iterator[Taken]:
        if stream.is_repeated():
            self.repeated += isinstance(entry, StreamBatch)
            return
        match entry:
            case SessionStart():
                stream.renew()
            case StreamGap():
                stream.lose()
            case StreamBatch(_, encoded):
                try:
                    batch, unknown = decode_batch(bytes(encoded))
                except FrameError:
                    self.undecoded += 1
                    stream.lose()
                    return
                self.undecoded += unknown
                yield Taken(stream, batch, stream.lost_before(batch))
