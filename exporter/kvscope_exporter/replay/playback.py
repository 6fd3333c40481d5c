"""Plays a recording: an exporter whose clock, sources and machine are those of a past moment.

Time moves in two ways: to a page that was rendered then, which comes out again line by line, or to
any moment, with everything that had arrived by then.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kvscope_events.wire.frame import FrameError, decode_batch
from kvscope_exporter.catalogue.server import ServerState
from kvscope_exporter.clock import Clock
from kvscope_exporter.collect.origins import Origins, ReportedFamilies
from kvscope_exporter.collect.readings import Readings
from kvscope_exporter.machine.gpu import GpuHistory
from kvscope_exporter.machine.gpu.poller import Reading as GpuReading
from kvscope_exporter.machine.host_memory import HostMemory
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.recorder.records import (
    GpuRecord,
    Mark,
    PageRecord,
    Record,
    SegmentStart,
    SessionStart,
    SourceRecord,
    StreamBatch,
    StreamGap,
    StreamStart,
)
from kvscope_exporter.replay.source import ReplayedSource
from kvscope_exporter.scrape import PageState
from kvscope_exporter.scrape.engines import Engine
from kvscope_exporter.sources.listener import Listener
from kvscope_exporter.targets.exporter import Exporter
from kvscope_exporter.targets.presence import Presence
from kvscope_exporter.targets.target import Target

_UNKNOWN = HostMemory(resident=None, limit=None, usage=None, unreclaimable=None)


class Index(NamedTuple):
    """The course of a recording, in its time; read from the whole file, once."""

    pages: list[PageRecord]
    """As they were rendered, with what the wall clock then said."""
    pages_ns: list[int]
    """Moments of the pages, none before the last one's."""
    told_ns: list[int]
    """By page: when all that it shows had arrived. A batch may arrive while a page is rendered."""
    marks: list[Mark]
    batches_ns: list[int]
    """Moments of all batches, in order."""


def index_of(file: RecordingFile) -> Index:
    index = Index([], [], [], [], [])
    ahead_ns, at_ns = 0, -(1 << 63)
    told_ns = at_ns
    for record in file.records():
        match record:
            case SegmentStart():
                ahead_ns = file.ahead_ns(record)
            case PageRecord():
                at_ns = max(at_ns, file.at_ns(record))
                index.pages.append(record)
                index.pages_ns.append(at_ns)
                told_ns = max(told_ns, at_ns)
                index.told_ns.append(told_ns)
            case Mark():
                index.marks.append(record)
            case StreamBatch():
                index.batches_ns.append(_time_of(record, 0) + ahead_ns)
                told_ns = max(told_ns, index.batches_ns[-1])
    index.batches_ns.sort()
    return index


class Playback:
    """`exporter` is the server at the moment.

    Time moves forward only; for an earlier moment, begin another playback.
    """

    def __init__(
        self,
        file: RecordingFile,
        index: Index | None = None,
        *,
        listeners: Callable[[], Sequence[Listener]] = tuple,
    ) -> None:
        """listeners: made for each target, further consumers of its batches."""
        self.file = file
        self._listeners = listeners
        self.undecodable = 0
        """Batches of the file that could not be read."""
        opened = self.file.opened
        self._opened = opened
        self._monotonic_ns, self._wall_ns = opened.monotonic_ns, opened.wall_ns
        self._ahead_ns = file.ahead_ns(opened)
        self._at_ns = opened.monotonic_ns + self._ahead_ns
        self._clock = Clock(lambda: self._monotonic_ns, lambda: self._wall_ns)
        self._page: PageRecord | None = None
        self._gpus: GpuReading | None = None
        self._gpu_history = GpuHistory()
        self._streams: dict[int, tuple[ReplayedSource, Target]] = {}
        self._presence = _RecordedPresence()
        self._readings = _RecordedReadings(self._clock)
        self.exporter = Exporter(
            [],
            clock=self._clock,
            process=False,
            presence=self._presence,
            readings=self._readings,
            recording=lambda: None if self._page is None else self._page.recording,
        )
        self.index = index or index_of(file)
        self._records = self.file.records()
        self._next: Record | None = next(self._records, None)

    @property
    def wall_ns(self) -> int:
        """The moment, in the recording's time."""
        return self._at_ns

    def again(self) -> "Playback":
        """Another one of the same file, at its beginning."""
        return Playback(self.file, self.index, listeners=self._listeners)

    def to_page(self, number: int) -> None:
        """Go to the moment of a page of the index, which can then be rendered again."""
        page = self.index.pages[number]
        self._ask_adviser(number)
        self._play(page)
        self._at_ns = self.index.pages_ns[number]

    def to(self, wall_ns: int) -> None:
        """Go to any moment of the recording, with all that had arrived by then."""
        index = self.index
        before = bisect_right(index.pages_ns, wall_ns) - 1
        if before < 0 or index.pages_ns[before] < wall_ns:
            before = bisect_right(index.told_ns, wall_ns) - 1
        if before >= 0:
            page_ns = index.pages_ns[before]
            if page_ns >= self._at_ns:
                self.to_page(before)
            if page_ns == wall_ns:
                return
        monotonic_ns = wall_ns - self._ahead_ns
        while self._next is not None and _time_of(self._next, monotonic_ns) <= monotonic_ns:
            self._step()
        for source, _ in self._streams.values():
            source.allow(source.position)
        self._drain()
        self._stand(monotonic_ns, wall_ns)
        self._at_ns = wall_ns
        self._show([*self._streams], self._gpus)

    def close(self) -> None:
        """Stop the targets; the exporter's last page can still be rendered."""
        for _, target in self._streams.values():
            target.stop()

    def _ask_adviser(self, number: int) -> None:
        """Repeat the last page up to this one for which the adviser was asked."""
        pages = self.index.pages
        asked = next((pages[n] for n in range(number, -1, -1) if pages[n].advised), None)
        if asked is not None and (self._page is None or asked.time_ns > self._page.time_ns):
            self._play(asked)
            self.exporter.render()

    def _play(self, page: PageRecord) -> None:
        while self._next is not None and (self._page is None or self._page.time_ns < page.time_ns):
            self._step()
        self._stand(page.time_ns, page.wall_ns)
        self._show([stream for stream, _ in page.positions], page.gpus)

    def _step(self) -> None:
        record = self._next
        self._next = next(self._records, None)
        match record:
            case StreamBatch(stream, encoded):
                try:
                    batch, _ = decode_batch(bytes(encoded))
                except FrameError:
                    self.undecodable += 1
                    self._give(stream, StreamGap(stream))
                else:
                    self._give(stream, batch)
            case StreamGap(stream) | SessionStart(stream) | SourceRecord(stream):
                self._give(stream, record)
            case StreamStart(stream):
                if stream not in self._streams:
                    self._streams[stream] = self._entered(record)
                else:
                    self._skip(stream, record.index)
            case PageRecord():
                self._page = record
                self._ahead_ns = self.file.at_ns(record) - record.time_ns
                self._presence.recorded = record
                self._readings.recorded = record
                for stream, position in record.positions:
                    if stream in self._streams:
                        self._streams[stream][0].allow(position)
                self._drain()
            case GpuRecord(_, reading):
                self._gpus = reading
                if reading.sample is not None:
                    self._gpu_history.note(reading.sample)

    def _give(self, stream: int, entry: object) -> None:
        if stream in self._streams:
            self._streams[stream][0].give(entry)  # type: ignore[arg-type]

    def _skip(self, stream: int, index: int) -> None:
        """Entries before a segment that are not in the recording."""
        source, _ = self._streams[stream]
        if index > source.position:
            source.give(StreamGap(stream))
            source.position = index

    def _entered(self, record: StreamStart) -> tuple[ReplayedSource, Target]:
        source = ReplayedSource(record.kind, record.endpoint, record.index)
        target = Target(
            source,
            compat=self._opened.compat,
            clock=self._clock,
            listeners=self._listeners(),
            own_pid_space=self._opened.pid_space or "",
        )
        return source, target

    def _drain(self) -> None:
        for source, target in self._streams.values():
            while source.is_due or source.is_renewed:
                if source.is_renewed:
                    source.renew()
                    target.pipeline.renew()
                # A pipeline leaves what comes after it began; here that is a moment long past.
                target.pipeline.drain()

    def _stand(self, monotonic_ns: int, wall_ns: int) -> None:
        self._monotonic_ns, self._wall_ns = monotonic_ns, wall_ns

    def _show(self, streams: list[int], gpus: GpuReading | None) -> None:
        self.exporter.show_targets(
            [self._streams[stream][1] for stream in streams if stream in self._streams]
        )
        page = self._page
        hosts = {} if page is None else dict(page.hosts)
        self.exporter.show(
            Machine(
                gpu=None if gpus is None else _RecordedGpus(gpus),
                gpu_history=self._gpu_history,
                only_reported=self._opened.only_reported,
                host=lambda pid: hosts.get(pid, _UNKNOWN),
                available=lambda: None if page is None else page.available,
            )
        )


class _RecordedPresence(Presence):
    """The state that the last page showed."""

    def __init__(self) -> None:
        super().__init__(lambda: (), (), lambda: False, lambda: ())
        self.recorded: PageRecord | None = None

    @property
    def state(self) -> ServerState | None:
        return None if self.recorded is None else self.recorded.state

    def unheard(self, state: ServerState | None) -> Sequence[str]:
        return () if self.recorded is None else self.recorded.unheard


class _RecordedReadings(Readings):
    """The server's own pages, as the last page showed them."""

    def __init__(self, clock: Clock) -> None:
        super().__init__((), clock)
        self.recorded: PageRecord | None = None

    def read(self, *, is_ready: bool) -> Sequence[PageState]:
        return () if self.recorded is None else self.recorded.pages

    def decide(
        self, pages: Sequence[PageState], told: Mapping[Engine, ReportedFamilies]
    ) -> Origins:
        if self.recorded is not None:
            self._origins.not_of_events = self.recorded.not_of_events
            self._origins.not_of_page = self.recorded.not_of_page
        return self._origins


class _RecordedGpus:
    def __init__(self, reading: GpuReading) -> None:
        self._reading = reading

    def read(self) -> GpuReading:
        return self._reading


def _time_of(record: Record, otherwise: int) -> int:
    """Monotonic; of a batch it is in the batch."""
    match record:
        case StreamBatch(_, encoded):
            try:
                return decode_batch(bytes(encoded))[0].arrived_ns
            except FrameError:
                return otherwise
        case SourceRecord(_, time_ns) | GpuRecord(time_ns) | PageRecord(time_ns) | Mark(time_ns):
            return time_ns
        case SegmentStart(_, _, _, monotonic_ns):
            return monotonic_ns
    return otherwise
