"""Records one server: every batch as it is folded, and what its pages read beside them.

The fold threads only append to a list; a thread of the recorder's encodes, compresses and writes,
once a second.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import msgspec

from kvscope_events.events import Batch
from kvscope_events.pid_space import pid_space
from kvscope_events.wire.frame import HAS_STATE, flags_of
from kvscope_exporter import build_version
from kvscope_exporter.catalogue.server import ServerState
from kvscope_exporter.clock import Clock, Moment
from kvscope_exporter.collect.observation import RecorderHealth
from kvscope_exporter.collect.origins import ByFamily, BySeries
from kvscope_exporter.machine.gpu.poller import Reading as GpuReading
from kvscope_exporter.machine.host_memory import Available, HostMemory
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.recorder import records
from kvscope_exporter.recorder.records import (
    Mark,
    PageRecord,
    SegmentStart,
    SessionStart,
    SourceRecord,
    StreamGap,
    StreamStart,
)
from kvscope_exporter.recorder.ring import Ring
from kvscope_exporter.recorder.writer import Limits as Limits
from kvscope_exporter.recorder.writer import Pending, SegmentHeader, Writer
from kvscope_exporter.scrape import PageState
from kvscope_exporter.sources.attachments import SourceKind
from kvscope_exporter.sources.source import SourceStatus


class StreamRecorder:
    """The listener for one stream; called by the thread that holds its folds."""

    name = "recorder"
    num_pending = 0

    def __init__(self, recorder: "Recorder", stream: int, kind: SourceKind, endpoint: str) -> None:
        self.stream = stream
        self.kind = kind
        self.endpoint = endpoint
        self.wants_snapshot = False
        self.index = 0
        """Entries so far."""
        self._recorder = recorder
        self._heard: SourceRecord | None = None
        self._is_behind = False

    def on_batch(self, batch: Batch) -> None:
        if self.wants_snapshot and flags_of(batch) & HAS_STATE:
            self.wants_snapshot = False
        if self._is_behind and self._add(StreamGap(self.stream)):
            self._is_behind = False
        if not self._add((self.stream, batch)):
            self._is_behind = self.wants_snapshot = True

    def on_gap(self) -> None:
        self._add(StreamGap(self.stream))

    def renew(self) -> None:
        """A new producer: the folds start over."""
        self._add(SessionStart(self.stream))
        self._heard = None

    def note(self, source: SourceStatus, *, running: bool, now_ns: int) -> None:
        """Note the source's state, for the page that is being rendered."""
        heard = SourceRecord(self.stream, now_ns, *source._replace(up=running and source.up))
        if self._heard is None or msgspec.structs.replace(heard, time_ns=self._heard.time_ns) != (
            self._heard
        ):
            self._heard = heard
            self._add(heard)
        self._recorder.note_position(self.stream, self.index)

    def begin(self) -> None:
        """A segment begins, in which the stream's state has to be."""
        self.wants_snapshot = True
        self._heard = None

    def _add(self, entry: Pending) -> bool:
        return self._recorder.add(entry, self)


@dataclass(slots=True)
class _Notes:
    """Everything that the page of one thread has read so far."""

    positions: list[tuple[int, int]] = field(default_factory=list)
    state: ServerState | None = None
    advised: bool = False
    unheard: Sequence[str] = ()
    recording: RecorderHealth | None = None
    hosts: dict[int, HostMemory] = field(default_factory=dict)
    available: Available | None = None
    gpus: GpuReading | None = None
    pages: Sequence[PageState] = ()
    not_of_events: BySeries = field(default_factory=dict)
    not_of_page: ByFamily = field(default_factory=dict)


class Recorder:
    """The recording of one server."""

    def __init__(
        self,
        server: str,
        ring: Ring,
        limits: Limits,
        *,
        clock: Clock,
        compat: list[str],
        settings: Mapping[str, str],
    ) -> None:
        self.server = server
        self.ring = ring
        self.last_page_ns = 0
        """When a page was last rendered, on the monotonic clock."""
        self._clock = clock
        self._compat = compat
        self._settings = dict(settings)
        self._build = build_version()
        self._only_reported = False
        self._streams: dict[int, StreamRecorder] = {}
        self._next_stream = 0
        self._notes = threading.local()
        self._sampled: GpuReading | None = None
        self._gpu = Machine().gpu
        self._writer = Writer(ring, limits, clock, self._opening)
        self._lock = self._writer.lock

    def stream(self, kind: SourceKind, endpoint: str) -> StreamRecorder:
        """The listener for a stream that is now on the page."""
        with self._lock:
            number, self._next_stream = self._next_stream, self._next_stream + 1
            stream = StreamRecorder(self, number, kind, endpoint)
            self._streams[number] = stream
            self._writer.pending.append(StreamStart(number, kind, endpoint, 0))
        return stream

    def leave(self, stream: StreamRecorder) -> None:
        """The stream is no longer on the page."""
        with self._lock:
            self._streams.pop(stream.stream, None)

    def add(self, record: Pending, stream: StreamRecorder | None = None) -> bool:
        """Keep a record; False if too many wait to be written. stream: whose entry it is."""
        with self._lock:
            is_kept = self._writer.put(record)
            if is_kept and stream is not None:
                stream.index += 1
        return is_kept

    @property
    def health(self) -> RecorderHealth:
        """Whether it keeps what arrives; a page that is being rendered notes it."""
        health = self._writer.health
        notes = self._noting
        if notes is not None:
            notes.recording = health
        return health

    def mark(self, trigger: str, text: str) -> None:
        """Note that something happened."""
        self.add(Mark(self._clock.monotonic_ns(), self._clock.wall_ns(), trigger, text))

    @contextmanager
    def page(self, moment: Moment) -> Iterator[None]:
        """Inside, this thread notes everything that the page of this moment reads."""
        notes = self._notes.now = _Notes()
        try:
            yield
            self.last_page_ns = moment.monotonic_ns
            self.add(
                PageRecord(
                    moment.monotonic_ns,
                    moment.wall_ns,
                    notes.positions,
                    notes.state,
                    notes.advised,
                    list(notes.hosts.items()),
                    notes.available,
                    notes.gpus,
                    notes.pages,
                    notes.not_of_events,
                    notes.unheard,
                    notes.recording,
                    notes.not_of_page,
                )
            )
        finally:
            self._notes.now = None

    def note_position(self, stream: int, index: int) -> None:
        notes = self._noting
        if notes is not None:
            notes.positions.append((stream, index))

    def note_server(
        self, state: ServerState | None, unheard: Sequence[str], *, advised: bool
    ) -> None:
        notes = self._noting
        if notes is not None:
            notes.state, notes.unheard, notes.advised = state, unheard, advised

    def note_readings(
        self, pages: Sequence[PageState], not_of_events: BySeries, not_of_page: ByFamily
    ) -> None:
        """The maps are new ones for each page: they are encoded later."""
        notes = self._noting
        if notes is not None:
            notes.pages = pages
            notes.not_of_events, notes.not_of_page = not_of_events, not_of_page

    @property
    def _noting(self) -> _Notes | None:
        return getattr(self._notes, "now", None)

    def machine(self, machine: Machine) -> Machine:
        """The machine, read once for each page, which notes it."""
        self._only_reported = machine.only_reported
        self._gpu = machine.gpu

        def host(pid: int) -> HostMemory:
            notes = self._noting
            if notes is None:
                return machine.host(pid)
            if pid not in notes.hosts:
                notes.hosts[pid] = machine.host(pid)
            return notes.hosts[pid]

        def available() -> Available | None:
            notes = self._noting
            if notes is None:
                return machine.available()
            if notes.available is None:
                notes.available = machine.available()
            return notes.available

        gpu = None if machine.gpu is None else _NotedGpu(self, machine.gpu.read)
        return replace(machine, gpu=gpu, host=host, available=available)

    def read_gpus(self, read: Callable[[], GpuReading]) -> GpuReading:
        """The GPUs, once for each page."""
        notes = self._noting
        if notes is None:
            return read()
        if notes.gpus is None:
            notes.gpus = read()
        return notes.gpus

    def write(self, *, ends: bool = False) -> None:
        """Write what waits; by the recorder's thread, or at the end. Raises OSError."""
        if self._gpu is not None and not ends:
            self._sample()
        self._writer.write(ends=ends)

    def rotate(self) -> None:
        """Let the next record begin a segment. Raises OSError."""
        self.write(ends=True)

    def _opening(self, opening: SegmentHeader) -> Iterator[records.Record]:
        yield SegmentStart(
            self._build,
            self.server,
            opening.now.wall_ns,
            opening.now.monotonic_ns,
            pid_space(),
            self._compat,
            self._only_reported,
            self._settings,
            self.ring.recorder,
            opening.number,
            opening.missing,
        )
        with self._lock:
            for stream in self._streams.values():
                stream.begin()
                pending = sum(_stream_of(each) == stream.stream for each in self._writer.pending)
                before = stream.index - pending
                yield StreamStart(stream.stream, stream.kind, stream.endpoint, before)

    def _sample(self) -> None:
        assert self._gpu is not None
        reading = self._gpu.read()
        if self._sampled is None or reading.sample is not self._sampled.sample:
            self._sampled = reading
            self.add(records.GpuRecord(self._clock.monotonic_ns(), reading))


class _NotedGpu:
    """The GPUs, read once for each page."""

    def __init__(self, recorder: Recorder, read: Callable[[], GpuReading]) -> None:
        self._recorder = recorder
        self._read = read

    def read(self) -> GpuReading:
        return self._recorder.read_gpus(self._read)


def _stream_of(entry: Pending) -> int | None:
    if isinstance(entry, tuple):
        return entry[0]
    return entry.stream if isinstance(entry, StreamGap | SessionStart | SourceRecord) else None
