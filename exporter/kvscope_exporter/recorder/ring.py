"""Segments of a recording, the newest of them: in memory, or as files of a folder.

Times are of the monotonic clock: a wall clock that is set forward must not age what is kept. The
newest file of a ring is locked until the next one is: by this other processes know that its
recorder lives.
"""

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from errno import EEXIST
from pathlib import Path
from secrets import token_hex

from kvscope_exporter.clock import Moment
from kvscope_exporter.files.private import append_whole, create_private, is_removed, lock, open_own
from kvscope_exporter.recorder.format import BEGINS, ENDS, pack_chunk, whole_chunks
from kvscope_exporter.recorder.gaps import Gap
from kvscope_exporter.recorder.records import MissingRecords

SUFFIX = ".kvsr"
_TRIES = 100


class Segment:
    """Chunks that can be read alone; kept in a file if there is a path, otherwise in memory."""

    def __init__(
        self, began: Moment, path: Path | None, missing: MissingRecords | None = None
    ) -> None:
        """missing: before it. Raises OSError; FileExistsError if the name is another's."""
        self.began_ns = self.last_ns = began.monotonic_ns
        self.ahead_ns = began.wall_ns - began.monotonic_ns
        """From the monotonic clock to the times that its chunks state."""
        self.missing = missing
        self.num_bytes = 0
        self.path = path
        self._chunks: list[bytes] = []
        self._file = None if path is None else create_private(path)
        self._lock: int | None = None
        if self._file is not None and not self._is_claimed():
            self._file.close()
            raise FileExistsError(EEXIST, "another process took it for one left behind", str(path))

    def _is_claimed(self) -> bool:
        """Whether it is ours. In a folder without locks it is; nothing is adopted there."""
        assert self._file is not None
        with suppress(OSError):
            if not lock(self._file) or is_removed(self._file):
                return False
            self._lock = os.dup(self._file.fileno())
        return True

    @property
    def is_removed(self) -> bool:
        """Whether its file was removed, so that what is written to it is lost."""
        return self._file is not None and not self._file.closed and is_removed(self._file)

    @property
    def gap(self) -> Gap | None:
        """The gap before it, in the time that its chunks state."""
        missing, ahead = self.missing, self.ahead_ns
        if missing is None:
            return None
        span = missing.since_ns + ahead, self.began_ns + ahead
        return Gap(*span, missing.records, missing.reason)

    def add(self, records: list[bytes], now_ns: int, *, ends: bool = False) -> None:
        """Write one chunk. Raises OSError; the file then ends with its last whole chunk."""
        flags = (0 if self.num_bytes else BEGINS) | (ENDS if ends else 0)
        ahead = self.ahead_ns
        chunk = pack_chunk(records, flags, self.last_ns + ahead, now_ns + ahead)
        if self._file is None:
            self._chunks.append(chunk)
        else:
            append_whole(self._file, chunk, self.num_bytes)
        self.num_bytes += len(chunk)
        self.last_ns = now_ns

    def close(self) -> None:
        """Add nothing more; the file stays locked."""
        if self._file is not None:
            self._file.close()

    def release(self) -> None:
        """Give up the lock."""
        self.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def chunks(self) -> Iterator[bytes]:
        """All whole chunks. Raises OSError."""
        if self.path is None:
            yield from self._chunks
        else:
            yield from chunks_of(self.path)

    def read(self) -> bytes:
        """All chunks. Raises OSError."""
        return b"".join(self.chunks())

    def copy(self) -> "Segment":
        """The same chunks, which stay when this segment is dropped; of one in memory."""
        began = Moment(self.began_ns, self.began_ns + self.ahead_ns)
        copied = Segment(began, None, self.missing)
        copied._chunks = self._chunks.copy()
        copied.num_bytes, copied.last_ns = self.num_bytes, self.last_ns
        return copied

    def drop(self) -> None:
        """Forget it. A file that cannot be removed, as on a disk that became read-only, stays."""
        self.close()
        self._chunks.clear()
        if self.path is not None:
            with suppress(OSError):
                self.path.unlink()
        self.release()


class Ring:
    """The newest segments of one server, bounded by age and bytes."""

    def __init__(self, keep_ns: int, folder: Path | None, server: str) -> None:
        """folder: for the segments' files; None: they stay in memory. server: begins their names,
        without a hyphen."""
        self.recorder = token_hex(6)
        """A name that no other recorder has, in whatever container or on whatever host."""
        self._keep_ns = keep_ns
        self._folder = folder
        self._prefix = f"{server}-{self.recorder}"
        self._number = 0
        self._lock = threading.Lock()
        self.segments: deque[Segment] = deque()
        """Changed under the lock, and copied before it is gone through: others may save."""

    @property
    def num_bytes(self) -> int:
        return sum(segment.num_bytes for segment in [*self.segments])

    def begin(self, now: Moment, records: list[bytes], missing: MissingRecords | None) -> Segment:
        """End the last segment, and begin another with these; none if that raises OSError."""
        last = self.segments[-1] if self.segments else None
        if last is not None:
            last.close()
        segment = self._new(now, missing)
        try:
            segment.add(records, now.monotonic_ns)
        except OSError:
            segment.drop()
            raise
        self.segments.append(segment)
        if last is not None:
            last.release()
        return segment

    def _new(self, now: Moment, missing: MissingRecords | None) -> Segment:
        if self._folder is None:
            return Segment(now, None, missing)
        for _ in range(_TRIES):
            self._number += 1
            with suppress(FileExistsError):
                path = self._folder / f"{self._prefix}-{self._number:06}{SUFFIX}"
                return Segment(now, path, missing)
        raise FileExistsError(EEXIST, "every name is taken", str(self._folder))

    def trim(self, now_ns: int) -> None:
        """Forget what is older than is kept; the newest segment always stays."""
        with self._lock:
            while len(self.segments) > 1 and self.segments[1].began_ns <= now_ns - self._keep_ns:
                self.segments.popleft().drop()

    def drop_oldest(self) -> bool:
        """Forget the oldest segment; False if it is the only one."""
        with self._lock:
            if len(self.segments) < 2:
                return False
            self.segments.popleft().drop()
            return True

    def clear(self) -> None:
        """Forget all segments."""
        while self.segments:
            self.segments.popleft().drop()

    def since(self, monotonic_ns: int) -> list[Segment]:
        """The segments that hold what happened from this moment on, and can still be read."""
        return [each for each in [*self.segments] if each.last_ns >= monotonic_ns]


def chunks_of(path: Path) -> Iterator[bytes]:
    """All whole chunks of a segment's file. Raises OSError."""
    with open_own(path) as file:
        yield from whole_chunks(file)
