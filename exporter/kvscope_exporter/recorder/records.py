"""The records of a recording: what arrived, in the order in which it was folded, and what a page
read beside it. No text of a request is ever in one: events hold names of blocks and lengths.
"""

from collections.abc import Sequence

import msgspec

from kvscope_exporter.catalogue.server import ServerState
from kvscope_exporter.collect.observation import RecorderHealth
from kvscope_exporter.collect.origins import ByFamily, BySeries
from kvscope_exporter.machine.gpu.poller import Reading as GpuReading
from kvscope_exporter.machine.host_memory import Available, HostMemory
from kvscope_exporter.scrape import PageState
from kvscope_exporter.sources.attachments import SourceKind


class MissingRecords(msgspec.Struct, frozen=True, array_like=True):
    """Records that the recorder could not keep, before a segment begins."""

    since_ns: int
    """When the last record before it was kept, on the monotonic clock."""
    records: int
    reason: str


class SegmentStart(msgspec.Struct, frozen=True, array_like=True, tag="opened"):
    """Begins a segment: who recorded, and both clocks at one moment."""

    build: str
    server: str
    wall_ns: int
    monotonic_ns: int
    pid_space: str | None
    compat: list[str]
    only_reported: bool
    """Whether the page shows only GPUs that its engines report."""
    settings: dict[str, str]
    """The recorder's own options, for people."""
    recorder: str = ""
    """The recorder, which no other has been: its segments have one monotonic clock."""
    number: int = 0
    """Place of the segment among all that the recorder has begun, from 1; 0: not stated."""
    missing: MissingRecords | None = None


class StreamStart(msgspec.Struct, frozen=True, array_like=True, tag="entered"):
    """A stream of the page: a new one, or, at the beginning of a segment, one that goes on."""

    stream: int
    kind: SourceKind
    endpoint: str
    index: int
    """Entries of the stream before this segment."""


class StreamBatch(msgspec.Struct, frozen=True, array_like=True, tag="batch"):
    """A batch, as the wire encodes it."""

    stream: int
    batch: msgspec.Raw
    """Its `arrived_ns` is of the recorder's monotonic clock, as every time in a record but
    `wall_ns`."""


class StreamGap(msgspec.Struct, frozen=True, array_like=True, tag="gap"):
    """Batches are missing before the next one."""

    stream: int


class SessionStart(msgspec.Struct, frozen=True, array_like=True, tag="renewed"):
    """A new producer: all state starts over."""

    stream: int


class SourceRecord(msgspec.Struct, frozen=True, array_like=True, tag="source"):
    """A source's state, as a page read it."""

    stream: int
    time_ns: int
    session: str
    up: bool
    """Whether it is heard, and read."""
    state_known: bool
    last_message_ns: int | None
    batches_dropped: int
    gaps: int
    decode_errors: dict[str, int]


class GpuRecord(msgspec.Struct, frozen=True, array_like=True, tag="gpus"):
    """The GPUs, as the poller saw them."""

    time_ns: int
    reading: GpuReading


class PageRecord(msgspec.Struct, frozen=True, array_like=True, tag="page"):
    """A page was rendered: its moment, and all that it read beside the folds."""

    time_ns: int
    wall_ns: int
    positions: list[tuple[int, int]]
    """The streams of the page in its order, with the entries of each that were folded."""
    state: ServerState | None
    advised: bool
    """Whether the adviser was asked again."""
    hosts: list[tuple[int, HostMemory]]
    """Host memory by pid."""
    available: Available | None
    gpus: GpuReading | None
    """None: no GPU is watched."""
    pages: Sequence[PageState] = ()
    """Pages of the server's own."""
    not_of_events: BySeries = {}
    """See `Origins`."""
    unheard: Sequence[str] = ()
    """See `Presence.unheard`."""
    recording: RecorderHealth | None = None
    not_of_page: ByFamily = {}
    """See `Origins`."""


class Mark(msgspec.Struct, frozen=True, array_like=True, tag="mark"):
    """Something happened for which a recording is saved."""

    time_ns: int
    wall_ns: int
    trigger: str
    text: str


Record = (
    SegmentStart
    | StreamStart
    | StreamBatch
    | StreamGap
    | SessionStart
    | SourceRecord
    | GpuRecord
    | PageRecord
    | Mark
)
Entry = StreamBatch | StreamGap | SessionStart | SourceRecord
"""Records that count as entries of a stream."""

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Record).decode
"""Raises msgspec.MsgspecError."""
