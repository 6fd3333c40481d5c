"""Writes the batches of a stream to a file, as frames of the wire, which `file://` can read.

The file always ends with a complete frame, even when the disk is full.
"""

import os
from contextlib import suppress
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Self

from exporter.files.private import create_private
from kvscope_events.events import Batch
from kvscope_events.wire.frame import FrameKind, encode_batch, flags_of, pack_header


class Recorder:
    """A new file; construction raises OSError, FileExistsError if there is one already."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.num_batches = 0
        self.num_bytes = 0
        self.sessions: list[str] = []
        """Sessions of the producers, in order."""
        self.recorded_ns = 0
        """Time from the first batch to the last, by the producers' clocks."""
        self.missing = 0
        """Batches that the stream lost between those in the file."""
        self.full = False
        """Whether a batch no longer fitted; nothing is written after it."""
        self._max_bytes = max_bytes
        self._path = path
        self._last_ns = 0
        # Private: names of blocks, by which a guessed prompt can be confirmed, are in it.
        self._file = create_private(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """A file without a batch is removed."""
        self._file.close()
        if not self.num_batches:
            with suppress(OSError):
                self._path.unlink()

    def add(self, batch: Batch, lost: int, session: str) -> bool:
        """Write a batch; False if the file is full. Raises OSError.

        lost: batches missing just before it. session: its publisher's.
        """
        payload = encode_batch(batch)
        header = pack_header(
            FrameKind.BATCH, flags_of(batch), bytes.fromhex(session), batch.seq, len(payload)
        )
        frame = header + payload
        self.full = self.full or self.num_bytes + len(frame) > self._max_bytes
        if self.full:
            return False
        append_whole(self._file, frame, self.num_bytes)
        self.num_bytes += len(frame)
        self.num_batches += 1
        self.missing += lost
        if session in self.sessions[-1:]:
            self.recorded_ns += batch.time_ns - self._last_ns
        else:
            self.sessions.append(session)
        self._last_ns = batch.time_ns
        return True


def append_whole(file: FileIO, content: bytes, size: int) -> None:
    """Append to a file of `size` bytes, which keeps this size if that fails. Raises OSError."""
    left = memoryview(content)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError:
        with suppress(OSError):
            os.ftruncate(file.fileno(), size)
        raise
