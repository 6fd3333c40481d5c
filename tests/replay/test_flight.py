"""The flight recorder: what it keeps, when it saves, and what it survives."""

import errno
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Never

import pytest
import zstandard

from kvscope_events.bus import EventBus
from kvscope_events.events import PoolSnapshot
from kvscope_exporter.clock import Clock
from kvscope_exporter.recorder import flight, ring
from kvscope_exporter.recorder import format as layout
from kvscope_exporter.recorder.flight import AFTER_NS, Flight
from kvscope_exporter.recorder.format import RecordingError, pack_chunk, read_chunks
from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.recorder.recorder import Limits
from kvscope_exporter.recorder.records import Mark
from kvscope_exporter.replay.playback import Playback
from kvscope_exporter.targets.exporter import in_process
from tests.events.producers import SNAPSHOT, hello
from tests.exporter.page import HELLO, value
from tests.replay.flights import Stage
from tests.support.waiting import wait_for

SECOND = 10**9


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    for recorder in Stage.recorders:
        recorder.ring.clear()
    Stage.recorders.clear()


def test_the_ring_forgets_what_is_older_than_is_kept(tmp_path: Path) -> None:
    stage = Stage(tmp_path, keep_seconds=60)
    for _ in range(120):
        stage.tell(hello(), SNAPSHOT)
        stage.tick()
    segments = stage.recorder.ring.segments
    kept = (segments[-1].last_ns - segments[0].began_ns) / SECOND
    assert 60 <= kept <= 60 + 2 * 12
    assert len(list(tmp_path.iterdir())) == len(segments)


def test_bytes_are_bounded_in_memory() -> None:
    stage = Stage(None, keep_seconds=3600, keep_bytes=1 << 20)
    for _ in range(160):
        names: list[bytes | None] = [os.urandom(16) for _ in range(500)]  # nothing to compress
        stage.tell(hello(), PoolSnapshot(500, 16, 0, 0, [1] * 500, names, []))
        stage.tick()
    assert 1 << 19 < stage.recorder.ring.num_bytes <= 1 << 20


def test_every_segment_can_be_played_alone(tmp_path: Path) -> None:
    stage = Stage(tmp_path, keep_seconds=60)
    stage.tell(hello(), SNAPSHOT)
    for _ in range(100):
        stage.tick()
        stage.tell()
    stage.recorder.rotate()
    for segment in list(stage.recorder.ring.segments)[1:]:
        assert segment.path is not None
        playback = Playback(RecordingFile(segment.path))
        playback.to_page(len(playback.index.pages) - 1)
        assert playback.file.problem is None
        assert value(playback.exporter, "kvscope_source_state_known") == 1


def test_a_moment_shows_nothing_of_a_page_that_was_rendered_across_it(tmp_path: Path) -> None:
    """A page has the time at which it began; what arrives meanwhile is on it and came later."""
    held: list[tuple[int, int]] = []
    clock = Clock(
        lambda: held[0][0] if held else time.monotonic_ns(),
        lambda: held[0][1] if held else time.time_ns(),
    )
    keeper = Flight(Limits(keep_ns=60 * SECOND, keep_bytes=1 << 20), None, {}, clock)
    bus = EventBus()
    recorder = keeper.recorder("model", [])
    exporter = in_process(bus.subscribe(), compat=[], clock=clock, recorder=recorder)
    Stage.recorders.append(recorder)

    def tell() -> None:
        bus.emit(HELLO)
        bus.emit(SNAPSHOT)
        bus.flush()

    def snapshots_at(wall_ns: int) -> float | None:
        playback = Playback(file)
        playback.to(wall_ns)
        return value(playback.exporter, "kvscope_events_total", type="PoolSnapshot")

    recorder.write()  # begins a segment
    tell()
    exporter.render()
    began = time.monotonic_ns(), time.time_ns()
    time.sleep(0.01)
    moment_ns = time.time_ns()
    time.sleep(0.01)
    tell()
    held.append(began)
    exporter.render()
    held.clear()
    path = tmp_path / "race.kvsr"
    path.write_bytes(b"".join(keeper.save(recorder, "manual", "by hand").read()))
    file = RecordingFile(path)
    assert [snapshots_at(at) for at in (moment_ns, time.time_ns())] == [1, 2]


def test_a_trouble_saves_two_minutes_later_and_once_an_hour() -> None:
    stage = Stage(None, keep_seconds=900)
    stage.tell(hello(), SNAPSHOT)
    stage.tick()
    for _ in range(3):
        stage.troubles = {"ledger": "3 blocks differ"}
        for _ in range(AFTER_NS // SECOND + 2):
            stage.tick()
        stage.troubles = {}
        stage.tick()
    (saved,) = stage.flight.saved()
    assert (saved.trigger, saved.text) == ("ledger", "3 blocks differ")
    for _ in range(60):
        stage.tick(60)
    stage.troubles = {"ledger": "4 blocks differ"}
    for _ in range(AFTER_NS // SECOND + 2):
        stage.tick()
    assert [each.text for each in stage.flight.saved()] == ["3 blocks differ", "4 blocks differ"]


def test_a_saved_recording_has_the_mark_of_its_trouble(tmp_path: Path) -> None:
    stage = Stage(None)
    stage.tell(hello(), SNAPSHOT)
    stage.troubles = {"engine_gone": "the server has gone silent"}
    stage.tick()
    path = tmp_path / "saved.kvsr"
    path.write_bytes(b"".join(stage.flight.save(stage.recorder, "manual", "by hand").read()))
    marks = [each for each in RecordingFile(path).records() if isinstance(each, Mark)]
    assert [(mark.trigger, mark.text) for mark in marks] == [
        ("engine_gone", "the server has gone silent")
    ]


def test_what_a_killed_process_left_is_a_recording_of_the_next_one(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    for _ in range(30):
        stage.tell(hello(), SNAPSHOT)
        stage.tick()
    left = [*tmp_path.iterdir()]
    assert len(left) > 1
    stage.recorder.ring.segments[-1].release()  # as the kernel does when a process is killed
    (saved,) = Stage(tmp_path).flight.saved()
    assert saved.trigger == "killed"
    assert [path.name for path in tmp_path.iterdir()] == [f"saved-{saved.name}"]
    assert saved.path is not None
    assert len(Playback(RecordingFile(saved.path)).index.pages) >= 30
    assert saved.path.stat().st_mode & 0o777 == 0o600


def test_a_full_disk_leaves_a_gap_and_recording_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(tmp_path / "gone")
    (tmp_path / "gone").mkdir()
    stage.tell(hello(), SNAPSHOT)
    stage.tick()
    (tmp_path / "gone").rename(tmp_path / "away")
    for _ in range(20):
        stage.tell()
        stage.tick()
    assert caplog.text.count("the recording has a gap") == 1
    (tmp_path / "away").rename(tmp_path / "gone")
    stage.tell(hello(), SNAPSHOT)
    stage.tick()
    stage.recorder.rotate()
    newest = stage.recorder.ring.segments[-1].path
    assert newest is not None
    assert Playback(RecordingFile(newest)).index.pages


def failing(number: int) -> Callable[..., Never]:
    def fail(*_: object, **__: object) -> Never:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_disk_that_stays_full_gets_no_empty_files_and_room_from_what_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, keep_seconds=60)
    for _ in range(60):
        stage.tell(hello(), SNAPSHOT)
        stage.tick()
    before = {*tmp_path.iterdir()}
    with monkeypatch.context() as patched:
        patched.setattr(ring, "append_whole", failing(errno.ENOSPC))
        for _ in range(40):
            stage.tick()
        assert {*tmp_path.iterdir()} < before
    stage.tell(hello(), SNAPSHOT)
    stage.tick()
    assert len({*tmp_path.iterdir()} - before) == 1


def test_a_disk_that_became_read_only_ends_no_recorder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(tmp_path, keep_bytes=1 << 10)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", failing(errno.EROFS))
        for _ in range(60):
            stage.tell(hello(model_name=os.urandom(80).hex()), SNAPSHOT)
            stage.tick()
        patched.setattr(os, "open", failing(errno.EROFS))
        stage.tick(60)
    assert caplog.text.count("the recording has a gap") == 1
    stage.tell(hello(), SNAPSHOT)
    stage.tick()
    assert stage.recorder.ring.num_bytes <= 1 << 10


def test_a_disk_that_hangs_does_not_hold_the_end_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(flight, "END_SECONDS", 0.3)
    answers = threading.Event()
    append = ring.append_whole

    def hang(*given: Any) -> None:
        answers.wait()
        append(*given)

    monkeypatch.setattr(ring, "append_whole", hang)
    stage = Stage(tmp_path)
    stage.tell(hello(), SNAPSHOT)
    began = time.monotonic()
    with stage.flight.running():
        pass
    assert time.monotonic() - began < 5
    assert f"the recording lacks its end: {tmp_path} took longer than 0.3 s" in caplog.text
    answers.set()
    wait_for(lambda: [each.trigger for each in stage.flight.saved()] == ["exit"], "it is saved")


def test_a_chunk_that_unpacks_to_more_than_it_states_is_refused(tmp_path: Path) -> None:
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(64 << 20))
    header = layout.pack_header(layout.BEGINS, 1000, 0, 0, bomb)
    path = tmp_path / "bomb.kvsr"
    path.write_bytes(header + bomb)
    with pytest.raises(RecordingError, match="byte"):
        RecordingFile(path)


def test_a_chunk_that_states_a_little_and_its_content_a_terabyte_takes_none(tmp_path: Path) -> None:
    frame = b"\x28\xb5\x2f\xfd\xc0\x50" + (1 << 40).to_bytes(8, "little") + b"\x01\x00\x00"
    path = tmp_path / "bomb.kvsr"
    path.write_bytes(layout.pack_header(layout.BEGINS, 1000, 0, 0, frame) + frame)
    with pytest.raises(RecordingError, match="longer than it states"):
        RecordingFile(path)


def test_many_save_at_once_and_each_has_a_recording_of_its_own(tmp_path: Path) -> None:
    """While the recorder writes, and begins segments."""
    for folder in (None, tmp_path):
        stage = Stage(folder, keep_bytes=1 << 26)
        stage.tell(hello(), SNAPSHOT)
        problems: list[Exception] = []
        ended = threading.Event()

        def save(stage: Stage, problems: list[Exception]) -> None:
            try:
                for _ in range(5):
                    stage.flight.save(stage.recorder, "manual", "asked for")
            except Exception as error:
                problems.append(error)

        def write(stage: Stage, problems: list[Exception], ended: threading.Event) -> None:
            try:
                for _ in range(300):
                    stage.recorder.rotate()
                    stage.flight._bound()
                    if ended.is_set():
                        break
            except Exception as error:
                problems.append(error)

        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            writing = threading.Thread(target=write, args=(stage, problems, ended))
            saving = [threading.Thread(target=save, args=(stage, problems)) for _ in range(4)]
            for each in (writing, *saving):
                each.start()
            for each in saving:
                each.join(60)
            ended.set()
            writing.join(60)
        finally:
            sys.setswitchinterval(before)
        assert problems == []
        names = [each.name for each in stage.flight.saved()]
        assert len(names) == len({*names}) == flight.MAX_SAVED


def test_who_saves_to_a_disk_that_hangs_takes_one_thread_and_the_others_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    append = ring.append_whole

    def hang(*given: Any) -> None:
        answers.wait()
        append(*given)

    monkeypatch.setattr(ring, "append_whole", hang)
    stage = Stage(tmp_path)
    stage.tell(hello(), SNAPSHOT)
    given = (stage.recorder, "manual", "asked for")
    first = threading.Thread(target=stage.flight.save, args=given)
    first.start()
    with pytest.raises(OSError, match="another recording is being saved"):
        stage.flight.save(*given, seconds=0.2)
    answers.set()
    first.join(60)
    assert stage.flight.save(*given, seconds=60).trigger == "manual"


@pytest.mark.parametrize("content", [b"", b"KVSR", b"\x7fELF" * 20, pack_chunk([b"x"], 1, 0, 0)])
def test_a_foreign_file_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "foreign.kvsr"
    path.write_bytes(content)
    with pytest.raises(RecordingError) as raised:
        RecordingFile(path)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


def test_chunks_give_their_records_back(tmp_path: Path) -> None:
    path = tmp_path / "chunks"
    records = [os.urandom(n) for n in (0, 1, 1000)]
    path.write_bytes(pack_chunk(records, 1, 5, 6) + pack_chunk([], 2, 6, 7))
    with path.open("rb") as file:
        first, last = read_chunks(file)
    stored = path.read_bytes()[first.offset : first.offset + first.stored_bytes]
    assert list(first.records(stored)) == records
    assert (first.first_ns, first.last_ns, last.flags) == (5, 6, 2)
