"""Files that earlier processes left beside the recordings: taken over, or named and left alone."""

import os
import tempfile
import time
from collections.abc import Iterator
from errno import EIO, ENOSPC
from pathlib import Path
from typing import Any

import pytest

from kvscope_exporter.files.private import lock, open_own
from kvscope_exporter.recorder import flight, saved
from kvscope_exporter.recorder.flight import MAX_SAVED
from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.replay.playback import Playback
from tests.events.producers import SNAPSHOT, hello
from tests.replay.flights import Stage
from tests.replay.test_flight import failing


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On a machine that is busy with other tests."""
    monkeypatch.setattr(flight, "ADOPT_SECONDS", 60.0)
    yield
    for recorder in Stage.recorders:
        recorder.ring.clear()
    Stage.recorders.clear()


def killed(folder: Path, segments: int = 2) -> list[Path]:
    """The segments of a process that was killed."""
    before = {*folder.iterdir()}
    stage = Stage(folder)
    stage.tell(hello(), SNAPSHOT)
    for _ in range(segments):
        stage.tick()
        stage.recorder.rotate()
    stage.kill()
    return sorted({*folder.iterdir()} - before)


def names(folder: Path, pattern: str = "*") -> list[str]:
    return sorted(path.name for path in folder.glob(pattern))


def make_link(path: Path) -> None:
    target = path.parent.parent / "secret"
    target.write_text("root:x:0:0:secret")
    path.symlink_to(target)


def make_hard_link(path: Path) -> None:
    target = path.parent.parent / "secret"
    target.write_text("root:x:0:0:secret")
    os.link(target, path)


FOREIGN: dict[str, Any] = {
    "a renamed saved recording": ("saved-mine.kvsr", lambda path: path.write_text("x")),
    "a name of somebody else's": ("incident.kvsr", lambda path: path.write_text("x")),
    "a folder": ("dir-999998-1.kvsr", Path.mkdir),
    "a folder with a saved name": ("saved-x-20260101T000000-exit.kvsr", Path.mkdir),
    "a link": ("link-999997-1.kvsr", make_link),
    "a link with a saved name": ("saved-x-20260101T000000-exit.kvsr", make_link),
    "a hard link": ("hard-999997-1.kvsr", make_hard_link),
    "a dangling link": ("link-999997-1.kvsr", lambda path: path.symlink_to("nowhere")),
    "a pipe": ("pipe-999996-1.kvsr", os.mkfifo),
    "a pipe with a saved name": ("saved-x-20260101T000000-exit.kvsr", os.mkfifo),
    "no recording": ("x-999995-1.kvsr", lambda path: path.write_text("root:x:0:0:root")),
    "a cut header": ("x-999995-1.kvsr", lambda path: path.write_bytes(b"KVSR\2\0")),
    "a saved one that is none": (
        "saved-x-20260101T000000-exit.kvsr",
        lambda path: path.write_text("x"),
    ),
    "a line break": ("a\nb-1-1-1.kvsr", lambda path: path.write_text("x")),
    "digits of another script": (
        "saved-x-\u0662\u0660\u0662\u0666\u0660\u0661\u0660\u0661T000000-exit.kvsr",
        lambda path: path.write_bytes(next(path.parent.glob("*.kvsr")).read_bytes()),
    ),
    "a part that is a folder": ("saved-x-20260101T000000-exit.part", Path.mkdir),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_what_is_not_ours_is_named_and_left_alone(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "recordings"
    folder.mkdir(mode=0o700)
    killed(folder)
    name, make = FOREIGN[kind]
    make(folder / name)
    before = (folder / name).lstat()
    recordings = Stage(folder).flight.saved()
    assert [each.trigger for each in recordings] == ["killed"]
    after = (folder / name).lstat()
    assert (after.st_ino, after.st_mode, after.st_size) == (
        before.st_ino,
        before.st_mode,
        before.st_size,
    )
    shown = name.replace("\n", " ")
    (line,) = [each for each in caplog.messages if shown in each]
    assert "stays as it is: " in line
    assert not any(b"secret" in part for each in recordings for part in each.read())


def test_a_file_of_another_user_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left = killed(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    assert Stage(tmp_path).flight.saved() == []
    assert "it belongs to uid" in caplog.text
    assert {*left} <= {*tmp_path.iterdir()}


@pytest.mark.parametrize("server", ["foo", "saved", ""])
def test_segments_whose_process_number_lives_again_are_taken_over(
    tmp_path: Path, server: str
) -> None:
    """As an older version named them: another process, or init, now has the number."""
    for path, number in zip(killed(tmp_path), (17, 9), strict=True):
        path.rename(tmp_path / f"{server}-{os.getpid()}-{number}.kvsr")
    (one,) = Stage(tmp_path).flight.saved()
    assert (one.server, one.trigger) == (server, "killed")
    assert names(tmp_path) == [f"saved-{one.name}"]


def test_a_recorder_that_lives_keeps_its_segments(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    for _ in range(3):
        stage.tell(hello(), SNAPSHOT)
        stage.tick()
        stage.recorder.rotate()  # none is open for a moment
        assert Stage(tmp_path).flight.saved() == []
    assert len(names(tmp_path)) == 3


def test_two_servers_of_one_name_share_a_folder(tmp_path: Path) -> None:
    """Also with one process number, as in two containers, and in the same second."""
    stages = [Stage(tmp_path), Stage(tmp_path)]
    for stage in stages:
        stage.tell(hello(), SNAPSHOT)
        stage.tick()
    kept = [stage.flight.save(stage.recorder, "exit", "the end") for stage in stages]
    kept += [stages[0].flight.save(stages[0].recorder, "exit", "the end")]
    assert len({each.name for each in kept}) == 3
    assert {f"saved-{each.name}" for each in kept} == {*names(tmp_path, "saved-*")}
    for each in kept:
        assert each.path is not None
        assert RecordingFile(each.path).problem is None
    assert len(Stage(tmp_path).flight.saved()) == 3


def test_a_full_disk_leaves_the_parts_as_one_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left = killed(tmp_path, 3)
    with monkeypatch.context() as patched:
        patched.setattr(saved, "append_whole", failing(ENOSPC))
        stage = Stage(tmp_path)
    assert names(tmp_path) == [path.name for path in left]
    (one,) = stage.flight.saved()
    assert "stays in parts: No space left on device" in caplog.text
    whole = tmp_path / "read.kvsr"
    whole.write_bytes(b"".join(one.read()))
    assert Playback(RecordingFile(whole)).index.pages
    assert one.num_bytes == whole.stat().st_size
    whole.unlink()
    assert Stage(tmp_path).flight.saved() == [], "they are held by the first"
    one.forget()
    assert names(tmp_path) == []


@pytest.fixture
def memory_folder() -> Iterator[Path]:
    """A folder in memory: its file system keeps any time stamp."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.mark.parametrize("year", [1, 20_000])
def test_a_time_that_no_calendar_has_keeps_nothing_from_being_taken_over(
    memory_folder: Path, year: int
) -> None:
    left = killed(memory_folder, 3)
    other = memory_folder / "foo-abc-1.kvsr"
    other.write_bytes(left[0].read_bytes())
    at_s = (year - 1970) * 31_557_600
    for path in left:
        os.utime(path, (at_s, at_s))
    now_ns = time.time_ns()
    recordings = Stage(memory_folder).flight.saved()
    assert len(recordings) == 2
    assert all(0 <= each.saved_ns <= time.time_ns() for each in recordings)
    assert year < 1970 or max(each.saved_ns for each in recordings) >= now_ns
    assert not other.exists()


@pytest.mark.parametrize("name", ["open_own", "write_new"])
def test_a_disk_with_errors_keeps_nothing_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    left = killed(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(f"kvscope_exporter.recorder.left.{name}", failing(EIO))
        Stage(tmp_path)
    assert names(tmp_path) == [path.name for path in left]


def test_a_damaged_segment_costs_only_itself(tmp_path: Path) -> None:
    left = killed(tmp_path, 4)
    left[1].write_bytes(left[1].read_bytes()[:-9])
    left[2].write_bytes(b"")
    (one,) = Stage(tmp_path).flight.saved()
    assert one.path is not None
    assert one.problem is not None
    assert "it has a gap" in one.problem
    assert len(Playback(RecordingFile(one.path)).index.pages) >= 1
    assert names(tmp_path) == [f"saved-{one.name}"]


def test_parts_of_a_killed_process_are_removed_and_those_of_a_living_one_stay(
    tmp_path: Path,
) -> None:
    part = tmp_path / "saved-x-20260101T000000-exit.part"
    part.write_bytes(b"KVSR")
    with open_own(part, os.O_RDWR) as file:
        assert lock(file)
        Stage(tmp_path)
        assert part.exists()
    Stage(tmp_path)
    assert not part.exists()


def test_thousands_of_left_recordings_do_not_hold_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (left,) = killed(tmp_path, 1)
    content = left.read_bytes()
    for number in range(3000):
        (tmp_path / f"foo-{number:x}-1.kvsr").write_bytes(content)
    monkeypatch.setattr(flight, "ADOPT_SECONDS", 0.2)
    began = time.monotonic()
    stage = Stage(tmp_path)
    assert time.monotonic() - began < 10
    deadline = time.monotonic() + 120
    while names(tmp_path, "foo-*") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(names(tmp_path)) == MAX_SAVED
    assert len(stage.flight.saved()) == MAX_SAVED


def test_what_is_left_counts_as_kept_and_the_oldest_is_removed(tmp_path: Path) -> None:
    (left,) = killed(tmp_path, 1)
    content = left.read_bytes()
    left.unlink()
    for age in range(6):
        path = tmp_path / f"foo-{age}-1.kvsr"
        path.write_bytes(content)
        os.utime(path, (10**9 - age, 10**9 - age))
    size = len(content)
    stage = Stage(tmp_path, keep_bytes=size * 3 + 10)
    assert [each.saved_ns // 10**9 for each in stage.flight.saved()] == [
        10**9 - age for age in (2, 1, 0)
    ]
    assert len(names(tmp_path)) == 3
