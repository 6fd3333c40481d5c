"""Recordings that take no time: of an engine in simulated time, and made record by record."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from kvscope_events.events import Batch
from kvscope_events.wire.frame import decode_batch, encode_batch
from kvscope_exporter.clock import Clock
from kvscope_exporter.recorder import records
from kvscope_exporter.recorder.format import BEGINS, ENDS, pack_chunk
from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.recorder.recorder import Limits, Recorder
from kvscope_exporter.recorder.records import (
    Record,
    SegmentStart,
    SourceRecord,
    StreamBatch,
    StreamStart,
)
from kvscope_exporter.recorder.ring import Ring
from kvscope_exporter.sources.pipeline import Pipeline
from tests.replay.recorded import save
from tests.why.stage import Stage, chat

BEGINS_NS = 1_700_000_000 * 10**9
"""Wall clock at which records made one by one begin; their monotonic clock begins at 0."""


def record_chat(path: Path, seconds: float, *, num_blocks: int, rate: float) -> None:
    """Record an engine with hits, evictions and, in a small pool, preemptions."""
    record_stage(
        path, lambda stage: stage.play(chat(1, seconds, rate=rate), seconds), num_blocks=num_blocks
    )


def record_stage(path: Path, play: Callable[[Stage], object], **settings: Any) -> None:
    """Record an engine to which anything may happen."""

    def recorder(clock: Clock) -> Recorder:
        keep_ns = 2 * 3600 * 10**9
        return Recorder(
            "llama",
            Ring(keep_ns, None, "llama"),
            Limits(keep_ns=keep_ns, keep_bytes=1 << 30),
            clock=clock,
            compat=[],
            settings={},
        )

    stage = Stage(recorded_by=recorder, **settings)
    # Its batches are folded by hand, without the thread that says that they are.
    with patch.object(Pipeline, "running", new=True):
        play(stage)
    assert stage.recorder is not None
    save(stage.recorder, path)


def batches_of(path: Path) -> Iterator[Batch]:
    """Every batch of a recording, read without the code that plays it."""
    for record in RecordingFile(path).records():
        if isinstance(record, StreamBatch):
            yield decode_batch(bytes(record.batch))[0]


def opened(server: str = "llama", settings: dict[str, str] | None = None) -> SegmentStart:
    return SegmentStart("0.1.0", server, BEGINS_NS, 0, None, [], False, settings or {})


def heard(time_ns: int) -> SourceRecord:
    """Stream 0 is there."""
    return SourceRecord(0, time_ns, "", True, True, time_ns, 0, 0, {})


def took(batch: Batch, stream: int = 0) -> StreamBatch:
    return StreamBatch(stream, msgspec.Raw(encode_batch(batch)))


def write_segment(path: Path, entries: Iterable[Record], *, ends_ns: int = BEGINS_NS) -> None:
    """A recording of one segment."""
    encoded = [records.encode(record) for record in entries]
    path.write_bytes(pack_chunk(encoded, BEGINS | ENDS, BEGINS_NS, ends_ns))


def write_batches(path: Path, batches: Iterable[Batch]) -> None:
    """A recording of an engine's events alone."""
    write_records(path, map(took, batches))


def write_records(path: Path, entries: Iterable[Record]) -> None:
    """A recording whose stream 0 is an engine."""
    write_segment(path, [opened(), StreamStart(0, "inprocess", "", 0), *entries])
