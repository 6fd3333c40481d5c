"""Records that wait to be written, and the segments into which it goes.

A disk that has no room for a moment loses nothing; what has to be given up is a gap, which the
next segment states.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from kvscope_events.events import Batch
from kvscope_events.wire.frame import encode_batch
from kvscope_exporter.clock import Clock, Moment
from kvscope_exporter.collect.observation import RecorderHealth
from kvscope_exporter.recorder import records
from kvscope_exporter.recorder.records import MissingRecords, StreamBatch
from kvscope_exporter.recorder.ring import Ring, Segment

MAX_PENDING = 1 << 14
"""Records between two turns of the recorder's thread, of about 5 KB each; beyond, the recording has
a gap. A turn is a second, unless a disk hangs: then they are half a minute of 500 steps a second.
"""
MAX_HELD = 1 << 12
"""Records that wait for a disk to have room again; beyond, the recording has a gap."""
GIVE_UP_NS = 30 * 10**9
"""A file that cannot be written for so long is left, and another begun; a recorder that has not
written for so long, which it does every second, is not up."""
STEP_NS = 10**9
"""A wall clock that leaves the monotonic one by this was set: a segment begins."""

Pending = records.Record | tuple[int, Batch]
"""A record; a batch is encoded later, on the recorder's thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of what is kept."""

    keep_ns: int
    keep_bytes: int

    @property
    def segment_ns(self) -> int:
        """Length of a segment: a fifth of what is kept, so that little more is."""
        return self.keep_ns // 5

    @property
    def segment_bytes(self) -> int:
        return self.keep_bytes // 8


class SegmentHeader(msgspec.Struct, frozen=True):
    """The facts of which the records at the beginning of a segment are made of."""

    now: Moment
    number: int
    missing: MissingRecords | None


class Writer:
    """`put` under `lock`, from any thread; `write` one at a time."""

    def __init__(
        self,
        ring: Ring,
        limits: Limits,
        clock: Clock,
        opening: Callable[[SegmentHeader], Iterable[records.Record]],
    ) -> None:
        """opening: the records that begin a segment."""
        self.lock = threading.Lock()
        self.pending: list[Pending] = []
        self._ring = ring
        self._limits = limits
        self._clock = clock
        self._opening = opening
        self._writing = threading.Lock()
        self._segment: Segment | None = None
        self._number = 0
        """Segments so far."""
        self._written_ns = clock.monotonic_ns()
        self._missing: MissingRecords | None = None
        """The records that are lost before the next segment."""
        self._gaps = 0
        self._is_failing = False

    @property
    def health(self) -> RecorderHealth:
        """A disk that hangs raises nothing, so time is looked at as well."""
        is_late = self._clock.monotonic_ns() - self._written_ns > GIVE_UP_NS
        return RecorderHealth(not (self._missing or self._is_failing or is_late), self._gaps)

    def put(self, record: Pending) -> bool:
        """Let it wait; False if too many do."""
        if len(self.pending) >= MAX_PENDING:
            self._miss(1, f"more than {MAX_PENDING:,} records waited to be written")
            return False
        self.pending.append(record)
        return True

    def write(self, *, ends: bool) -> None:
        """Write what waits. Raises OSError: it waits on, unless it has become too much."""
        with self._writing:
            now_ns = self._clock.monotonic_ns()
            self._ring.trim(now_ns)  # first: a full disk gets room
            try:
                self._write(now_ns, ends=ends)
            except OSError as error:
                self._is_failing = True
                self._give_up(now_ns, error.strerror or str(error))
                raise
            self._is_failing = False

    def _write(self, now_ns: int, *, ends: bool) -> None:
        segment = self._current(now_ns)
        with self.lock:
            pending, self.pending = self.pending, []
            # The lost records came after those that waited: the next segment begins there.
            ends = ends or self._missing is not None
        encoded = [_encoded(each) for each in pending]
        try:
            if encoded or ends:
                segment.add(encoded, now_ns, ends=ends)
        except OSError:
            with self.lock:
                self.pending = pending + self.pending
            raise
        self._written_ns = now_ns
        if ends:
            self._end_segment()

    def _give_up(self, now_ns: int, reason: str) -> None:
        """Drop what waits for a disk that stays full, or a file that cannot be written."""
        with self.lock:
            if len(self.pending) > MAX_HELD:
                self._miss(len(self.pending), reason)
                self.pending.clear()
            elif self._segment is None or now_ns - self._written_ns < GIVE_UP_NS:
                return
            else:
                self._miss(0, reason)
        self._end_segment()

    def _miss(self, count: int, reason: str) -> None:
        """Note that these could not be kept; under the lock."""
        missing = self._missing
        if missing is None:
            self._gaps += 1
            missing = MissingRecords(self._written_ns, 0, reason)
        self._missing = MissingRecords(missing.since_ns, missing.records + count, missing.reason)

    def _end_segment(self) -> None:
        if self._segment is not None:
            self._segment.close()
        self._segment = None

    def _current(self, now_ns: int) -> Segment:
        """The segment that is written, or the next. Raises OSError."""
        limits, segment = self._limits, self._segment
        now = Moment(now_ns, self._clock.wall_ns())
        if segment is not None and segment.is_removed:
            with self.lock:
                self._miss(0, "its file was removed")
            self._end_segment()
        elif segment is not None and (
            now_ns - segment.began_ns >= limits.segment_ns
            or segment.num_bytes >= limits.segment_bytes
            or abs(now.wall_ns - now_ns - segment.ahead_ns) >= STEP_NS
        ):
            segment.add([], now_ns, ends=True)
            self._end_segment()
        return self._segment or self._begin(now)

    def _begin(self, now: Moment) -> Segment:
        missing = self._missing
        opening = self._opening(SegmentHeader(now, self._number + 1, missing))
        encoded = [records.encode(each) for each in opening]
        segment = self._segment = self._ring.begin(now, encoded, missing)
        self._number += 1
        with self.lock:
            if self._missing is missing:
                self._missing = None
        return segment


def _encoded(entry: Pending) -> bytes:
    if isinstance(entry, tuple):
        stream, batch = entry
        entry = StreamBatch(stream, msgspec.Raw(encode_batch(batch)))
    return records.encode(entry)
