"""The recording of one stream alone, in a file of its own: its batches and its source, no pages."""

from errno import ENOENT
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Self

import msgspec

from kvscope_events.events import Batch
from kvscope_events.wire.frame import encode_batch
from kvscope_exporter import build_version
from kvscope_exporter.clock import Clock
from kvscope_exporter.recorder import records
from kvscope_exporter.recorder.format import LENGTH_BYTES
from kvscope_exporter.recorder.records import (
    Record,
    SegmentStart,
    SessionStart,
    SourceRecord,
    StreamBatch,
    StreamGap,
    StreamStart,
)
from kvscope_exporter.recorder.ring import Segment
from kvscope_exporter.sources.source import Source, SourceStatus

_STREAM = 0
_PORTION_BYTES = 1 << 20
"""As much is written at once, so that a long backlog needs little memory."""
_OVERHEAD_BYTES = 1024
"""Room for all but the batches of a chunk, and for the chunk that ends the segment."""


class StreamFile:
    """One segment. Construction raises OSError, FileExistsError if there is such a file already.

    The file always ends with a whole chunk, even when the disk is full.
    """

    def __init__(self, path: Path, source: Source, max_bytes: int, clock: Clock) -> None:
        self.num_batches = 0
        self.restarts = 0
        """Further producers after the first."""
        self.recorded_ns = 0
        """Time from the first batch to the last, by the producers' clocks."""
        self.missing = 0
        """Batches that the stream lost between those in the file."""
        self.full = False
        """Whether a batch no longer fitted; nothing is added after it."""
        self._source = source
        self._max_bytes = max_bytes
        self._clock = clock
        self._session = ""
        self._last_ns = 0
        self._was: tuple[bool, bool] | None = None
        """Whether the source was up, and its state known, when that was last written."""
        now = clock.now()
        self._segment = Segment(now, path)
        opened = SegmentStart(
            *(build_version(), source.endpoint, now.wall_ns, now.monotonic_ns, None, [], False, {}),
            recorder=token_hex(6),
            number=1,
        )
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._put(opened)
        self._put(StreamStart(_STREAM, source.kind, source.endpoint, 0))

    @property
    def num_bytes(self) -> int:
        """Bytes in the file."""
        return self._segment.num_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Write what waits. A file without a batch is removed. Raises OSError."""
        try:
            if kind is None and self.num_batches:
                self.write(ends=True)
        finally:
            if self.num_batches and self.num_bytes:
                self._segment.release()
            else:
                self._segment.drop()

    def add(self, batch: Batch, lost: int) -> bool:
        """Keep the batch that was just taken from the source; False if the file is full. Raises
        OSError."""
        content = encode_batch(batch)
        if self._lacks_room(content):
            self.write()  # compressed, what waits leaves more room
        self.full = self.full or self._lacks_room(content)
        if self.full:
            return False
        is_other = self._source.session != self._session
        if is_other and self.num_batches:
            self.restarts += 1
            self._put(SessionStart(_STREAM))
        elif self.num_batches:
            self.recorded_ns += batch.time_ns - self._last_ns
        if lost:
            self.missing += lost
            self._put(StreamGap(_STREAM))
        self._put(StreamBatch(_STREAM, msgspec.Raw(content)))
        self.num_batches += 1
        self._session, self._last_ns = self._source.session, batch.time_ns
        if self._waiting_bytes >= _PORTION_BYTES:
            self.write()
        return True

    def write(self, *, ends: bool = False) -> None:
        """Write what waits, with the state of the source as it is now. Raises OSError."""
        if self._segment.is_removed:
            raise OSError(ENOENT, "the file was removed")
        seen = SourceStatus.of(self._source)
        if not (self._waiting or ends or (seen.up, seen.state_known) != self._was):
            return
        self._was = seen.up, seen.state_known
        now_ns = self._clock.monotonic_ns()
        self._put(SourceRecord(_STREAM, now_ns, *seen))
        self._segment.add(self._waiting, now_ns, ends=ends)
        self._waiting, self._waiting_bytes = [], 0
        self.full = self.full or self._lacks_room(b"")

    def _put(self, record: Record) -> None:
        encoded = records.encode(record)
        self._waiting.append(encoded)
        self._waiting_bytes += len(encoded) + LENGTH_BYTES

    def _lacks_room(self, content: bytes) -> bool:
        """Whether this may not fit behind what waits, if it is hardly compressed."""
        more = self._waiting_bytes + len(content)
        return self.num_bytes + more + more // 128 + _OVERHEAD_BYTES > self._max_bytes
