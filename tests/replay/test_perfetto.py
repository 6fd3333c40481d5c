"""`kvscope rec export --perfetto`, read with Perfetto's own schema and compared with plain loops.

Its trace processor reads it in test_trace_processor.py; here the rules for tracks, slices and flows
are checked one by one, without a browser.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos
from typer.testing import CliRunner

from kvscope.cli.app import app
from kvscope_events.events import (
    Batch,
    BlocksAllocated,
    BlocksEvicted,
    BlocksReleased,
    PrefixLookup,
    RequestPreempted,
    RequestResumed,
    SequenceAdded,
    SequenceFinished,
    StepCompleted,
)
from kvscope_exporter.recorder.records import Mark, SessionStart, StreamGap
from tests.events.producers import hello
from tests.replay.simulated import (
    BEGINS_NS,
    batches_of,
    record_chat,
    took,
    write_records,
)

SECOND = 10**9
EVENT = protos.TrackEvent
Spans = dict[str, list[tuple[str, int, int]]]


class Slice(NamedTuple):
    track: str
    name: str
    begin_ns: int
    end_ns: int
    details: dict[str, Any]


class Read:
    """A trace, for which everything that Perfetto demands of one was asserted."""

    def __init__(self, path: Path) -> None:
        packets = protos.Trace.FromString(path.read_bytes()).packet
        assert packets[0].sequence_flags & protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        assert {packet.trusted_packet_sequence_id for packet in packets} == {1}
        clocks = {clock.clock_id: clock.timestamp for clock in packets[0].clock_snapshot.clocks}
        assert clocks[protos.BUILTIN_CLOCK_BOOTTIME] == clocks[protos.BUILTIN_CLOCK_REALTIME]
        self.tracks: dict[int, Any] = {}
        self.slices: list[Slice] = []
        self.instants: list[Slice] = []
        self.counters: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self.flows: defaultdict[int, list[Slice]] = defaultdict(list)
        self._open: dict[int, Any] = {}
        for packet in packets:
            if packet.HasField("track_descriptor"):
                self._declare(packet.track_descriptor)
            elif packet.HasField("track_event"):
                self._event(packet)
        assert not self._open, "a slice without an end"
        for ends in self.flows.values():
            assert len(ends) == 2
            assert ends[0].track != ends[1].track

    def names(self) -> list[str]:
        return [track.name for track in self.tracks.values()]

    def _declare(self, track: Any) -> None:
        assert track.uuid not in self.tracks
        assert not track.parent_uuid or track.parent_uuid in self.tracks
        self.tracks[track.uuid] = track

    def _event(self, packet: Any) -> None:
        event, at_ns = packet.track_event, packet.timestamp
        track = self.tracks[event.track_uuid]
        assert track.HasField("counter") == (event.type == EVENT.TYPE_COUNTER)
        details = {
            each.name: each.string_value or each.int_value for each in event.debug_annotations
        }
        match event.type:
            case EVENT.TYPE_COUNTER:
                self.counters[track.name].append((at_ns, event.counter_value))
            case EVENT.TYPE_INSTANT:
                instant = Slice(track.name, event.name, at_ns, at_ns, details)
                self.instants.append(instant)
                for flow in event.flow_ids:
                    self.flows[flow].append(instant)
            case EVENT.TYPE_SLICE_BEGIN:
                assert track.uuid not in self._open, "phases do not overlap"
                self._open[track.uuid] = event.name, at_ns, details
            case EVENT.TYPE_SLICE_END:
                name, begin_ns, before = self._open.pop(track.uuid)
                assert begin_ns <= at_ns
                ended = Slice(track.name, name, begin_ns, at_ns, before | details)
                self.slices.append(ended)

    def spans(self) -> Spans:
        """The phases of each sequence."""
        spans: defaultdict[str, list[tuple[str, int, int]]] = defaultdict(list)
        for each in self.slices:
            spans[each.track].append((each.name, each.begin_ns, each.end_ns))
        return dict(spans)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traced") / "load.kvsr"
    record_chat(path, 120, num_blocks=90, rate=2.0)
    return path


def export(recording: Path, folder: Path) -> Read:
    out = folder / "load.pftrace"
    result = CliRunner().invoke(app, ["rec", "export", str(recording), "--perfetto", str(out)])
    assert result.exit_code == 0, result.output
    assert [path.name for path in folder.glob("load.pftrace*")] == ["load.pftrace"]
    return Read(out)


@pytest.fixture(scope="module")
def trace(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> Read:
    return export(recording, tmp_path_factory.mktemp("trace"))


def steps_of(recording: Path) -> Iterator[tuple[Batch, int, int]]:
    """Every batch with the times at which its step began and ended."""
    last_ns = 0
    for batch in batches_of(recording):
        took_ns = sum(e.duration_ns for e in batch.events if isinstance(e, StepCompleted))
        begin_ns, last_ns = max(last_ns, batch.wall_ns - took_ns), batch.wall_ns
        yield batch, begin_ns, last_ns


def expected_spans(recording: Path) -> Spans:
    changes: dict[int, list[tuple[str, int]]] = {}
    ended: dict[int, int] = {}
    for batch, begin_ns, end_ns in steps_of(recording):
        for event in batch.events:
            match event:
                case SequenceAdded(sequence):
                    changes[sequence] = [("queued", begin_ns)]
                case PrefixLookup(sequence) if not event.resumed:
                    changes[sequence].append(("prefill", begin_ns))
                case RequestPreempted(sequence):
                    changes[sequence].append(("preempted", begin_ns))
                case RequestResumed(sequence):
                    phase = "prefill" if event.recompute_tokens else "decode"
                    changes[sequence].append((phase, begin_ns))
                case SequenceFinished(sequence):
                    ended[sequence] = end_ns
        for event in batch.events:
            if isinstance(event, StepCompleted):
                for sequence in event.emitted:
                    if changes[sequence][-1][0] == "prefill" and sequence not in ended:
                        changes[sequence].append(("decode", end_ns))
    spans: Spans = {}
    for sequence, course in changes.items():
        limits = [at_ns for _, at_ns in course[1:]] + [ended.get(sequence, end_ns)]
        spans[f"sequence {sequence}"] = [
            (phase, at_ns, until_ns)
            for (phase, at_ns), until_ns in zip(course, limits, strict=True)
        ]
    return spans


def test_every_phase_of_every_sequence_is_a_slice(recording: Path, trace: Read) -> None:
    spans = trace.spans()
    assert spans == expected_spans(recording)
    phases = Counter(name for course in spans.values() for name, _, _ in course)
    assert len(spans) > 200
    assert phases["preempted"] > 20


def test_counters_are_those_of_the_steps(recording: Path, trace: Read) -> None:
    series: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for batch, _, end_ns in steps_of(recording):
        for event in batch.events:
            if isinstance(event, StepCompleted):
                for name, value in {
                    "active blocks": event.active_blocks,
                    "cached blocks": event.cached_blocks,
                    "free blocks": event.free_blocks,
                    "running sequences": event.running,
                    "waiting sequences": event.waiting,
                    "prefill tokens a step": event.prefill_tokens,
                    "decode tokens a step": event.decode_tokens,
                }.items():
                    if not series[name] or series[name][-1][1] != value:
                        series[name].append((end_ns, value))
    assert trace.counters == series


def test_every_eviction_is_there(recording: Path, trace: Read) -> None:
    evicted: Counter[tuple[int, str]] = Counter()
    for batch, begin_ns, _ in steps_of(recording):
        for event in batch.events:
            if isinstance(event, BlocksEvicted):
                evicted[begin_ns, event.cause] += len(event.blocks)
    shown = {
        (each.begin_ns, each.details["cause"]): each.details["blocks"]
        for each in trace.instants
        if each.track == "evictions"
    }
    assert shown == evicted
    assert sum(shown.values()) > 100


def test_arrows_go_from_victims_to_those_that_took_their_blocks(
    recording: Path, trace: Read
) -> None:
    given: dict[int, set[int]] = {}
    waiting: dict[int, set[int]] = {}
    taken: Counter[tuple[str, str]] = Counter()
    for batch in batches_of(recording):
        for event in batch.events:
            match event:
                case BlocksReleased(sequence, cached, free, shared, "preempted"):
                    given[sequence or 0] = {*cached, *free, *shared}
                case RequestPreempted(sequence):
                    waiting[sequence] = given.pop(sequence)
                case RequestResumed(sequence) | SequenceFinished(sequence):
                    waiting.pop(sequence, None)
                case BlocksAllocated(sequence, blocks):
                    waiting.pop(sequence or 0, None)
                    for victim, left in waiting.items():
                        if got := left.intersection(blocks):
                            left -= got
                            taken[f"sequence {victim}", f"sequence {sequence}"] += len(got)
    arrows: Counter[tuple[str, str]] = Counter()
    for source, target in trace.flows.values():
        assert source.name == f"lost {source.details['blocks']} to {target.track.split()[1]}"
        arrows[source.track, target.track] += target.details["blocks"]
    assert arrows == taken
    assert len(arrows) > 20


def test_tracks_are_grouped_by_engine(trace: Read) -> None:
    roots = [track.name for track in trace.tracks.values() if not track.parent_uuid]
    assert roots == ["demo, engine 0"]


def batch(seq: int, *events: Any) -> Batch:
    return Batch(seq, seq * SECOND, list(events), BEGINS_NS + seq * SECOND, seq * SECOND)


def test_slices_end_where_events_are_missing_and_where_the_engine_ends(tmp_path: Path) -> None:
    added = SequenceAdded(1, 1, 10, 20)
    write_records(
        tmp_path / "gap.kvsr",
        [
            took(batch(0, hello())),
            took(batch(1, added)),
            StreamGap(0),
            took(batch(3, SequenceAdded(2, 2, 10, 20))),
            took(batch(4)),
            SessionStart(0),
            took(batch(6, hello(), added)),
            Mark(7 * SECOND, BEGINS_NS + 7 * SECOND, "ledger", "3 blocks differ\x1b[2J"),
            took(batch(8)),
        ],
    )
    read = export(tmp_path / "gap.kvsr", tmp_path)
    seconds = [
        (each.track, (each.begin_ns - BEGINS_NS) // SECOND, (each.end_ns - BEGINS_NS) // SECOND)
        for each in read.slices
    ]
    assert seconds == [("sequence 1", 1, 1), ("sequence 2", 3, 4), ("sequence 1", 6, 8)]
    assert read.names().count("sequence 1") == 2
    assert [each.name for each in read.instants] == ["events are missing", "ledger"]
    assert read.instants[1].details["text"] == "3 blocks differ\\x1b[2J"
