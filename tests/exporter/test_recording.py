"""A recorded stream gives the page that the engine had at its end."""

import os
import threading
from pathlib import Path

import pytest

from exporter.clock import Clock
from exporter.sources.recording import RecordingSource
from exporter.watched.exporter import Exporter
from exporter.watched.target import Target
from kvscope_events.events import Batch, EngineEvent, PoolCreated
from kvscope_events.wire.endpoint import EndpointError
from kvscope_events.wire.frame import FrameKind, encode_batch, flags_of, pack_header
from tests.exporter.page import value
from tests.exporter.stream import HELLO, hello, step
from tests.support.waiting import wait_for

SESSION = b"recorded"
START: list[EngineEvent] = [HELLO, PoolCreated(8, 4, 64)]


def frame(seq: int, events: list[EngineEvent], session: bytes = SESSION) -> bytes:
    batch = Batch(seq, seq, events, 5)
    payload = encode_batch(batch)
    return pack_header(FrameKind.BATCH, flags_of(batch), session, seq, len(payload)) + payload


def page_of(file: Path, content: bytes) -> Exporter:
    file.write_bytes(content)
    source = RecordingSource(f"file://{file}", Clock())
    return Exporter([Target(source, compat=(), clock=Clock())])


def test_the_last_recorded_state_is_shown(tmp_path: Path) -> None:
    busy = step(active_blocks=0, free_blocks=8, decode_tokens=3)
    exporter = page_of(tmp_path / "run", frame(0, START) + frame(1, [busy]) + frame(2, [busy]))
    assert value(exporter, "kvscope_kv_blocks", state="free") == 8
    assert value(exporter, "kvscope_step_tokens_total", phase="decode") == 6
    assert value(exporter, "kvscope_source_state_known", source="recording") == 1
    assert value(exporter, "kvscope_host_memory_resident_bytes") is None
    exporter.start()
    exporter.stop()


def test_a_recording_is_not_closed_while_a_page_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run"
    file.write_bytes(frame(0, START))
    target = Target(RecordingSource(f"file://{file}", Clock()), compat=(), clock=Clock())
    monkeypatch.setattr(target.pipeline, "stop", lambda: None)  # the page comes just after it
    removal = threading.Thread(target=target.stop)
    with target.pipeline.settled():
        removal.start()
        removal.join(0.1)
        assert removal.is_alive()
    removal.join()
    assert target.source.take() is None


def test_a_hole_in_a_recording_is_a_gap_until_the_next_state(tmp_path: Path) -> None:
    hole = frame(0, START) + frame(3, [step()])
    exporter = page_of(tmp_path / "run", hole)
    assert value(exporter, "kvscope_event_batches_dropped_total") == 2
    assert value(exporter, "kvscope_kv_blocks", state="free") is None
    healed = page_of(tmp_path / "healed", hole + frame(4, START))
    assert value(healed, "kvscope_kv_blocks", state="free") == 8


def test_a_second_run_in_a_recording_begins_anew(tmp_path: Path) -> None:
    other: list[EngineEvent] = [hello(model_name="other"), PoolCreated(16, 4, 64)]
    exporter = page_of(tmp_path / "run", frame(0, START) + frame(0, other, b"session2"))
    assert value(exporter, "kvscope_kv_capacity_blocks", model_name="other") == 16
    assert value(exporter, "kvscope_kv_capacity_blocks", model_name="demo") is None


def test_a_recording_cut_short_is_read_to_there_and_counted(tmp_path: Path) -> None:
    exporter = page_of(tmp_path / "run", frame(0, START) + frame(1, [step()])[:-3])
    assert value(exporter, "kvscope_kv_blocks", state="free") == 8
    assert value(exporter, "kvscope_event_decode_errors_total", kind="malformed") == 1


def test_a_recording_that_shrinks_while_it_is_read_is_read_to_there(tmp_path: Path) -> None:
    file = tmp_path / "run"
    steps = [frame(seq, [step(decode_tokens=1)]) for seq in range(1, 60_000)]
    file.write_bytes(frame(0, START) + b"".join(steps))
    source = RecordingSource(f"file://{file}", Clock())
    assert source.take() is not None
    with file.open("r+b") as writer:
        writer.truncate(1000)
    taken = 0
    while source.wait(0):
        while source.take() is not None:
            taken += 1
    source.close()
    assert taken < len(steps)
    assert source.broken_off is not None
    assert source.decode_errors["malformed"] == 1


def test_batches_that_come_again_count_once(tmp_path: Path) -> None:
    frames = [frame(0, START), *(frame(seq, [step(decode_tokens=1)]) for seq in range(1, 50))]
    other: list[EngineEvent] = [hello(), PoolCreated(8, 4, 64)]
    restarted = [frame(0, other, b"session2"), frame(1, [step(decode_tokens=1)], b"session2")]
    for spliced, tokens in (
        (frames * 2, 49),
        (frames[:30] + frames[10:], 49),
        (frames + restarted + frames + restarted, 1),  # a new run counts from 0
    ):
        exporter = page_of(tmp_path / "run", b"".join(spliced))
        assert value(exporter, "kvscope_step_tokens_total", phase="decode") == tokens
        assert value(exporter, "kvscope_event_batches_dropped_total") == 0
        assert value(exporter, "kvscope_source_state_known", source="recording") == 1
        assert value(exporter, "kvscope_kv_blocks", state="free") == 8


@pytest.mark.parametrize("content", [None, b""], ids=["missing", "empty"])
def test_what_is_no_recording_is_refused(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "run"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(EndpointError, match="cannot be read"):
        RecordingSource(f"file://{file}", Clock())


def test_a_pipe_is_no_recording_and_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run")
    with pytest.raises(EndpointError, match="cannot be read: a pipe, not a file"):
        RecordingSource(f"file://{tmp_path / 'run'}", Clock())


def test_a_long_recording_is_read_in_portions_to_its_end(tmp_path: Path) -> None:
    steps = b"".join(frame(seq, [step(decode_tokens=1)]) for seq in range(1, 10_001))
    exporter = page_of(tmp_path / "run", frame(0, START) + steps)
    exporter.start()
    wait_for(
        lambda: value(exporter, "kvscope_step_tokens_total", phase="decode") == 10_000, "all read"
    )
    exporter.stop()
