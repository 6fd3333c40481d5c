"""The source for a recorded stream: the wire's messages one after another in a file."""

import os
import threading
from collections.abc import Generator
from pathlib import Path

import msgspec

from exporter.clock import Clock
from exporter.files.foreign import open_regular
from exporter.sources.attachments import SourceKind
from kvscope_events.events import Batch, Hello
from kvscope_events.wire.endpoint import EndpointError
from kvscope_events.wire.frame import (
    DECODE_ERROR_KINDS,
    HAS_STATE,
    HEADER_BYTES,
    Frame,
    FrameError,
    FrameKind,
    decode_batch,
    payload_bytes,
    read_frames,
)

SCHEME = "file://"
PORTION_BATCHES = 4096
"""Batches that one drain takes, so that pages are served while a long recording is read."""

MAX_SESSIONS = 4096
"""Sessions whose repeated batches are recognised; a recording usually has a few."""


class RecordingSource:
    """Reads in portions, as fast as batches are taken; after the end, the last state stays.

    Construction raises EndpointError. An invalid frame ends the recording, since the start of the
    next one is not known.
    """

    kind: SourceKind = "recording"
    up = True
    superseded = False

    def __init__(self, endpoint: str, clock: Clock) -> None:
        """endpoint: file:///PATH."""
        self.endpoint = endpoint
        self.session = ""
        self.state_known = False
        self.last_message_ns: int | None = None
        self.batches_dropped = 0
        self.gaps = 0
        self.decode_errors: dict[str, int] = dict.fromkeys(DECODE_ERROR_KINDS, 0)
        self.broken_off: str | None = None
        """The reason why the recording ends before its file."""
        self.repeated = 0
        """Repeated batches, which count once."""
        self.bytes_read = 0
        self._next_seq: int | None = None
        self._sessions_before: dict[str, None] = {}
        self._portion = PORTION_BATCHES
        self._ended = False
        self._woken = threading.Event()
        self._opened_ns = clock.monotonic_ns()
        try:
            self._file = open_regular(Path(endpoint.removeprefix(SCHEME)))
        except (OSError, ValueError) as error:  # ValueError: a null byte
            reason = getattr(error, "strerror", None) or error
            raise EndpointError(endpoint, f"cannot be read: {reason}", "name a recording") from None
        self.num_bytes = os.fstat(self._file.fileno()).st_size
        if not self.num_bytes:
            self._file.close()
            raise EndpointError(endpoint, "cannot be read: it is empty", "name a recording")
        self._frames = self._read()

    def take(self) -> tuple[Batch, int] | None:
        if not self._portion:
            self._portion = PORTION_BATCHES
            return None
        self._portion -= 1
        for frame in self._frames:
            if self._is_repeated(frame):
                continue
            try:
                batch, unknown = decode_batch(frame.payload)
            except FrameError as error:
                self.decode_errors[error.kind] += 1
                continue  # its number is missing from the next one on
            self.decode_errors["unknown_event"] += unknown
            return self._stamped(batch), self._lost_before(frame)
        self._ended = True
        return None

    def request_snapshot(self) -> None:
        """Do nothing: a file cannot be asked; it may have further snapshots."""

    def wait(self, timeout: float) -> bool:
        """True at once until the end is reached."""
        return not self._ended or self._woken.wait(timeout)

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        self._woken.set()
        self._frames.close()
        self._file.close()

    def _read(self) -> Generator[Frame, None, None]:
        """The batches of the file, up to its length when it was opened."""
        try:
            while self.bytes_read < self.num_bytes:
                header = self._file.read(HEADER_BYTES)
                if not header:
                    raise FrameError("malformed", "the file became shorter while it was read")
                (frame,) = read_frames(header + self._file.read(payload_bytes(header)))
                self.bytes_read += HEADER_BYTES + len(frame.payload)
                if frame.kind == FrameKind.BATCH:
                    yield frame
        except FrameError as error:
            self.decode_errors[error.kind] += 1
            self.broken_off = error.problem
        except OSError as error:
            self.decode_errors["malformed"] += 1
            self.broken_off = f"the file can no longer be read: {error.strerror}"
        finally:
            self._file.close()

    def _is_repeated(self, frame: Frame) -> bool:
        """Whether the file had this batch before, as in a file combined from several."""
        session = frame.session.hex()
        if session == self.session:
            repeated = self._next_seq is not None and frame.seq < self._next_seq
        else:
            repeated = session in self._sessions_before
        self.repeated += repeated
        return repeated

    def _lost_before(self, frame: Frame) -> int:
        session = frame.session.hex()
        if session != self.session:
            self._sessions_before[self.session] = None
            if len(self._sessions_before) > MAX_SESSIONS:
                del self._sessions_before[next(iter(self._sessions_before))]
            self.session, self._next_seq, self.state_known = session, None, False
        expected, self._next_seq = self._next_seq, frame.seq + 1
        lost = 0 if expected is None else max(0, frame.seq - expected)
        if lost:
            self.gaps += 1
            self.batches_dropped += lost
            self.state_known = False
        self.state_known = self.state_known or bool(frame.flags & HAS_STATE)
        return lost

    def _stamped(self, batch: Batch) -> Batch:
        """The batch as it arrived with the file; its pids no longer mean anything."""
        self.last_message_ns = self._opened_ns
        events = [
            msgspec.structs.replace(event, pid_space=None) if isinstance(event, Hello) else event
            for event in batch.events
        ]
        return msgspec.structs.replace(batch, events=events, arrived_ns=self._opened_ns)
