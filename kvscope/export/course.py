"""The engines of a recording, batch by batch, on the wall clock; memory is bounded by one chunk."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from kvscope_events.events import Batch, Hello, StepCompleted
from kvscope_events.wire.frame import FrameError, decode_batch
from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.recorder.records import (
    Mark,
    SegmentStart,
    SessionStart,
    StreamBatch,
    StreamGap,
    StreamStart,
)

_LATEST_NS = 1 << 62
"""The latest moment; a hostile recording may name any."""


class Span(NamedTuple):
    """The time of one batch, which never begins before the last one ended. Wall clock in ns."""

    begin_ns: int
    """When its step began, at which its scheduler decided."""
    end_ns: int
    """When its step ended, with the tokens that it produced."""


class Listener(Protocol):
    """Hears one session of one engine."""

    def on_batch(self, batch: Batch, span: Span) -> None: ...

    def on_gap(self, wall_ns: int) -> None:
        """Batches are missing here."""

    def on_end(self, wall_ns: int) -> None:
        """The session has ended, or the recording."""


class Course:
    """Plays a recording to listeners, one for each session of each engine.

    Processes that report only memory, and streams of content, have no steps and are left out. So
    are batches before the first Hello, which names the engine.
    """

    def __init__(
        self,
        file: RecordingFile,
        listener_of: Callable[[Hello], Listener],
        on_mark: Callable[[Mark], None] = lambda mark: None,
    ) -> None:
        """listener_of: given the engine's first Hello."""
        self._file = file
        self._listener_of = listener_of
        self._on_mark = on_mark
        self._streams: dict[int, _Stream] = {}
        self._ahead_ns = 0
        """The recording's time less the recorder's monotonic clock."""

    def play(self) -> Iterator[float]:
        """Yields the share that was played, after every batch."""
        begins_ns = self._file.begins_ns
        length = max(1, self._file.ends_ns - begins_ns)
        for record in self._file.records():
            match record:
                case StreamBatch(number, encoded):
                    stream = self._streams.get(number)
                    if stream is not None:
                        stream.take(bytes(encoded), self._ahead_ns, is_set=self._file.was_set)
                        yield min(1.0, max(0.0, (stream.now_ns - begins_ns) / length))
                case StreamGap(number) if number in self._streams:
                    self._streams[number].lose()
                case SessionStart(number) if number in self._streams:
                    self._streams[number].renew()
                case StreamStart(number, kind) if (
                    number not in self._streams and kind != "kv_events"
                ):
                    self._streams[number] = _Stream(self._listener_of)
                case SegmentStart():
                    self._ahead_ns = self._file.ahead_ns(record)
                case Mark():
                    self._on_mark(record)
        for stream in self._streams.values():
            stream.renew()


class _Stream:
    """Intervals are those of the producer's monotonic clock; one moment of each session fixes
    where on the wall clock they lie."""

    def __init__(self, listener_of: Callable[[Hello], Listener]) -> None:
        self.now_ns = 0
        self._listener_of = listener_of
        self._listener: Listener | None = None
        self._ahead_ns = 0

    def take(self, encoded: bytes, recorder_ahead_ns: int, *, is_set: bool) -> None:
        """is_set: the wall clock was set meanwhile, so that what batches say of it is not used."""
        try:
            batch, _ = decode_batch(encoded)
        except FrameError:
            self.lose()
            return
        if self._listener is None:
            hello = next((event for event in batch.events if isinstance(event, Hello)), None)
            if hello is None or hello.worker is not None:
                return
            arrived_ns = batch.arrived_ns + recorder_ahead_ns
            wall_ns = arrived_ns if is_set else batch.wall_ns or arrived_ns
            self._ahead_ns = wall_ns - batch.time_ns
            self._listener = self._listener_of(hello)
        self._listener.on_batch(batch, self._span(batch))

    def lose(self) -> None:
        if self._listener is not None:
            self._listener.on_gap(self.now_ns)

    def renew(self) -> None:
        if self._listener is not None:
            self._listener.on_end(self.now_ns)
        self._listener = None

    def _span(self, batch: Batch) -> Span:
        end_ns = min(_LATEST_NS, max(self.now_ns, batch.time_ns + self._ahead_ns))
        duration_ns = 0
        for event in reversed(batch.events):
            if isinstance(event, StepCompleted):
                duration_ns = event.duration_ns
                break
        begin_ns = max(self.now_ns, end_ns - duration_ns)
        self.now_ns = end_ns
        return Span(begin_ns, end_ns)
