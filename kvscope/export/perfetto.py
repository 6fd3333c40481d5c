"""A recording as a trace of Perfetto: a track for each sequence, counters, evictions, preemptions.

Written in Perfetto's own protocol buffers, packet by packet: memory holds only open sequences.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Any, BinaryIO

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos
from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

from kvscope.export.course import Course, Span
from kvscope.export.phases import Details, Phase, Phases
from kvscope.export.victims import Victims
from kvscope_events.events import Batch, BlocksEvicted, Hello, PagesEvicted, StepCompleted
from kvscope_events.printable import one_line
from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.recorder.records import Mark

_LARGEST = (1 << 63) - 1
_COUNTERS = {
    "active blocks": "active_blocks",
    "cached blocks": "cached_blocks",
    "free blocks": "free_blocks",
    "running sequences": "running",
    "waiting sequences": "waiting",
    "prefill tokens a step": "prefill_tokens",
    "decode tokens a step": "decode_tokens",
}
"""Tracks, and fields of StepCompleted."""


def write_trace(file: RecordingFile, out: BinaryIO) -> Iterator[float]:
    """Yields the share of the recording that was written."""
    trace = _Trace(out, file.begins_ns)
    marks: list[int] = []

    def mark(record: Mark) -> None:
        if not marks:
            marks.append(trace.track("marks"))
        trace.instant(marks[0], record.wall_ns, record.trigger, {"text": record.text})

    yield from Course(file, lambda hello: _Engine(trace, hello), mark).play()


class _Trace:
    """Packets of one file; times are Unix times in nanoseconds."""

    def __init__(self, out: BinaryIO, begins_ns: int) -> None:
        self._builder = StreamingTraceProtoBuilder(out)
        self._numbers = count(1)
        packet = self._packet(begins_ns)
        packet.sequence_flags = protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        # Equal, so that Perfetto can show the time of day.
        for clock in (protos.BUILTIN_CLOCK_BOOTTIME, protos.BUILTIN_CLOCK_REALTIME):
            packet.clock_snapshot.clocks.add(clock_id=clock, timestamp=begins_ns)
        self._builder.write_packet(packet)

    def number(self) -> int:
        """A number for a track or a flow that no other has."""
        return next(self._numbers)

    def track(
        self,
        name: str,
        parent: int | None = None,
        *,
        counts: str | None = None,
        ordering: int = protos.TrackDescriptor.EXPLICIT,
    ) -> int:
        """Declare a track. counts: a counter's; those of one name share their axis. ordering: of
        the tracks below it, explicit as they are declared; by default Perfetto sorts by name."""
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = 1
        track = packet.track_descriptor
        track.uuid = self.number()
        track.name = one_line(name, 200)
        track.sibling_merge_behavior = (
            protos.TrackDescriptor.SIBLING_MERGE_BEHAVIOR_NONE
        )  # a sequence's number may come again in another session
        track.child_ordering = ordering
        track.sibling_order_rank = track.uuid
        if parent is not None:
            track.parent_uuid = parent
        if counts is not None:
            track.counter.unit = protos.CounterDescriptor.UNIT_COUNT
            track.counter.y_axis_share_key = f"{counts} {parent}"
        self._builder.write_packet(packet)
        return int(track.uuid)

    def begin(self, track: int, at_ns: int, name: str, details: Details) -> None:
        packet = self._event(track, at_ns, protos.TrackEvent.TYPE_SLICE_BEGIN, details)
        packet.track_event.name = name
        self._builder.write_packet(packet)

    def end(self, track: int, at_ns: int, details: Details) -> None:
        self._builder.write_packet(
            self._event(track, at_ns, protos.TrackEvent.TYPE_SLICE_END, details)
        )

    def instant(
        self, track: int, at_ns: int, name: str, details: Details, flow: int | None = None
    ) -> None:
        """flow: drawn as an arrow from the first instant with this number to the second."""
        packet = self._event(track, at_ns, protos.TrackEvent.TYPE_INSTANT, details)
        packet.track_event.name = one_line(name, 200)
        if flow is not None:
            packet.track_event.flow_ids.append(flow)
        self._builder.write_packet(packet)

    def count(self, track: int, at_ns: int, value: int) -> None:
        packet = self._event(track, at_ns, protos.TrackEvent.TYPE_COUNTER, {})
        packet.track_event.counter_value = min(_LARGEST, value)
        self._builder.write_packet(packet)

    def _event(self, track: int, at_ns: int, kind: int, details: Details) -> Any:
        packet = self._packet(at_ns)
        event = packet.track_event
        event.type = kind
        event.track_uuid = track
        for name, value in details.items():
            if isinstance(value, str):
                event.debug_annotations.add(name=name, string_value=one_line(value, 200))
            else:
                event.debug_annotations.add(
                    name=name, int_value=min(_LARGEST, max(-_LARGEST, value))
                )
        return packet

    def _packet(self, at_ns: int) -> Any:
        packet = self._builder.create_packet()
        packet.timestamp = max(0, at_ns)
        packet.trusted_packet_sequence_id = 1
        return packet


class _Engine:
    """One session of an engine: its group of tracks."""

    def __init__(self, trace: _Trace, hello: Hello) -> None:
        self._trace = trace
        self._root = trace.track(f"{hello.model_name}, engine {hello.engine}")
        self._counters = {
            title: trace.track(title, self._root, counts=title.split()[-1]) for title in _COUNTERS
        }
        self._values: dict[str, int] = {}
        self._evictions = trace.track("evictions", self._root)
        chronological = protos.TrackDescriptor.CHRONOLOGICAL
        self._sequences = trace.track("sequences", self._root, ordering=chronological)
        self._tracks: dict[int, int] = {}
        self._phases = Phases(self)
        self._victims = Victims()

    def on_batch(self, batch: Batch, span: Span) -> None:
        self._phases.follow(batch, span)
        self._victims.follow(batch, span)
        for victim, taker, blocks in self._victims.takings():
            self._taken(victim, taker, blocks, span.begin_ns)
        for _ in self._victims.settled():
            pass
        evicted: Counter[str] = Counter()
        for event in batch.events:
            match event:
                case BlocksEvicted():
                    evicted[event.cause] += len(event.blocks)
                case PagesEvicted():
                    evicted[event.cause] += event.pages
                case StepCompleted():
                    self._count(event, span.end_ns)
        for cause, number in evicted.items():
            details: Details = {"blocks": number, "cause": cause}
            self._trace.instant(self._evictions, span.begin_ns, f"evicted {number:,}", details)

    def on_gap(self, wall_ns: int) -> None:
        self._phases.cut(wall_ns)
        self._victims.cut()
        self._trace.instant(self._sequences, wall_ns, "events are missing", {})

    def on_end(self, wall_ns: int) -> None:
        self._phases.cut(wall_ns)

    def begin(self, sequence: int, phase: Phase, at_ns: int, details: Details) -> None:
        track = self._tracks.get(sequence)
        if track is None:
            track = self._trace.track(f"sequence {sequence}", self._sequences)
            self._tracks[sequence] = track
        else:
            self._trace.end(track, at_ns, {})
        self._trace.begin(track, at_ns, phase, details)

    def end(self, sequence: int, at_ns: int, details: Details) -> None:
        self._trace.end(self._tracks.pop(sequence), at_ns, details)

    def _count(self, event: StepCompleted, at_ns: int) -> None:
        for title, field in _COUNTERS.items():
            value = getattr(event, field)
            if self._values.get(title) != value:
                self._values[title] = value
                self._trace.count(self._counters[title], at_ns, value)

    def _taken(self, victim: int, taker: int | None, blocks: int, at_ns: int) -> None:
        """An arrow, where both have a track."""
        source = self._tracks.get(victim)
        target = None if taker is None else self._tracks.get(taker)
        if source is not None and target is not None:
            flow, details = self._trace.number(), {"blocks": blocks}
            self._trace.instant(source, at_ns, f"lost {blocks:,} to {taker}", details, flow)
            self._trace.instant(target, at_ns, f"took {blocks:,} of {victim}", details, flow)
