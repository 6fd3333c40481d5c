"""Segments of a recording, the newest of them: in memory, or as files of a folder."""

import os
from collections import deque
from contextlib import suppress
from pathlib import Path

from exporter.flight.format import BEGINS, ENDS, pack_chunk
from exporter.sources.recorder import append_whole

SUFFIX = ".kvsr"


class Segment:
    """Chunks that can be read alone; kept in a file if there is a path, otherwise in memory."""

    def __init__(self, began_ns: int, path: Path | None) -> None:
        """began_ns: wall clock. Raises OSError."""
        self.began_ns = self.last_ns = began_ns
        self.num_bytes = 0
        self.path = path
        self._chunks: list[bytes] = []
        # Unbuffered: what was written survives the end of this process.
        self._file = None if path is None else _private(path).open("ab", buffering=0)

    def add(self, records: list[bytes], last_ns: int, *, ends: bool = False) -> None:
        """Write one chunk. Raises OSError; the file then ends with its last whole chunk."""
        flags = (0 if self.num_bytes else BEGINS) | (ENDS if ends else 0)
        chunk = pack_chunk(records, flags, self.last_ns, last_ns)
        if self._file is None:
            self._chunks.append(chunk)
        else:
            append_whole(self._file, chunk, self.num_bytes)
        self.num_bytes += len(chunk)
        self.last_ns = last_ns

    def close(self) -> None:
        """Add nothing more."""
        if self._file is not None:
            self._file.close()

    def read(self) -> bytes:
        """All chunks. Raises OSError."""
        return b"".join(self._chunks) if self.path is None else self.path.read_bytes()

    def copy(self) -> "Segment":
        """The same chunks, which stay when this segment is dropped; of one in memory."""
        copied = Segment(self.began_ns, None)
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


class Ring:
    """The newest segments of one server, bounded by age and bytes."""

    def __init__(self, keep_ns: int, folder: Path | None, prefix: str) -> None:
        """folder: for the segments' files; None: they stay in memory."""
        self._keep_ns = keep_ns
        self._folder = folder
        self._prefix = prefix
        self.segments: deque[Segment] = deque()

    @property
    def num_bytes(self) -> int:
        return sum(segment.num_bytes for segment in self.segments)

    def begin(self, wall_ns: int, records: list[bytes]) -> Segment:
        """End the last segment, and begin another with these; none if that raises OSError."""
        if self.segments:
            self.segments[-1].close()
        path = None
        if self._folder is not None:
            path = self._folder / f"{self._prefix}-{wall_ns // 1_000_000}{SUFFIX}"
        segment = Segment(wall_ns, path)
        try:
            segment.add(records, wall_ns)
        except OSError:
            segment.drop()
            raise
        self.segments.append(segment)
        return segment

    def trim(self, now_ns: int) -> None:
        """Forget what is older than is kept; the newest segment always stays."""
        while len(self.segments) > 1 and self.segments[1].began_ns <= now_ns - self._keep_ns:
            self.segments.popleft().drop()

    def drop_oldest(self) -> bool:
        """Forget the oldest segment; False if it is the only one."""
        if len(self.segments) < 2:
            return False
        self.segments.popleft().drop()
        return True

    def clear(self) -> None:
        """Forget all segments."""
        while self.segments:
            self.segments.popleft().drop()

    def since(self, wall_ns: int) -> list[Segment]:
        """The segments that hold what happened from this moment on."""
        return [each for each in self.segments if each.last_ns >= wall_ns]


def _private(path: Path) -> Path:
    """The path of a new file that only its owner can read. Raises OSError."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    return path
