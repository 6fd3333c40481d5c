"""The source for a recorded stream: the wire's messages one after another in a file."""

import mmap
import threading
from collections.abc import Generator
from pathlib import Path

import msgspec

from exporter.clock import Clock
from exporter.sources.source import SourceKind
from kvscope_events.events import Batch, Hello
from kvscope_events.wire.codec import decode_batch
from kvscope_events.wire.errors import DECODE_ERROR_KINDS, EndpointError, FrameError
from kvscope_events.wire.frame import HAS_STATE, HEADER_BYTES, Frame, FrameKind, read_frames

SCHEME = "file://"
PORTION_BATCHES = 4096
"""Batches that one drain takes, so that pages are served while a long recording is read."""


class RecordingSource:
    """Reads in portions, as fast as it is taken from; after the end, the last state stays.

    Construction raises EndpointError. A frame that is not valid ends the recording, since nothing
    says where the next one begins.
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
        """Why the recording ends before its file does."""
        self.bytes_read = 0
        self._next_seq: int | None = None
        self._portion = PORTION_BATCHES
        self._ended = False
        self._woken = threading.Event()
        self._opened_ns = clock.monotonic_ns()
        try:
            with Path(endpoint.removeprefix(SCHEME)).open("rb") as file:
                self._content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: an empty file
            raise EndpointError(endpoint, f"cannot be read: {error}", "name a recording") from None
        self.num_bytes = len(self._content)
        self._frames = self._read()

    def take(self) -> tuple[Batch, int] | None:
        if not self._portion:
            self._portion = PORTION_BATCHES
            return None
        self._portion -= 1
        for frame in self._frames:
            try:
                batch, unknown = decode_batch(frame.payload)
            except FrameError as error:
                self.decode_errors[error.kind] += 1
                continue  # its number is missing from the next one on
            self.decode_errors["unknown_event"] += unknown
            return self._stamped(batch), self._lost_before(frame)
        self._ended = True
        return None

    def wait(self, timeout: float) -> bool:
        """True at once until the end is reached."""
        return not self._ended or self._woken.wait(timeout)

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        self._woken.set()
        self._frames.close()
        self._content.close()

    def _read(self) -> Generator[Frame, None, None]:
        try:
            for frame in read_frames(self._content):  # type: ignore[arg-type]
                self.bytes_read += HEADER_BYTES + len(frame.payload)
                if frame.kind == FrameKind.BATCH:
                    yield frame
        except FrameError as error:
            self.decode_errors[error.kind] += 1
            self.broken_off = error.problem

    def _lost_before(self, frame: Frame) -> int:
        session = frame.session.hex()
        if session != self.session:
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
        """The batch as it arrived with the file; its pids mean nothing any more."""
        self.last_message_ns = self._opened_ns
        events = [
            msgspec.structs.replace(event, pid_space=None) if isinstance(event, Hello) else event
            for event in batch.events
        ]
        return msgspec.structs.replace(batch, events=events, arrived_ns=self._opened_ns)
