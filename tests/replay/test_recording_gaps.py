"""Recordings with gaps: they say so themselves, on the page, and over HTTP."""

import errno
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvscope.cli.app import app
from kvscope_events.events import Batch, StepCompleted
from kvscope_exporter.recorder import ring, writer
from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.replay.playback import Playback
from tests.events.producers import SNAPSHOT, hello
from tests.events.test_engine_untouched import resident_bytes
from tests.exporter.page import value
from tests.replay.flights import SECOND, Stage
from tests.replay.recorded import lines_of
from tests.replay.test_flight import failing


def saved(stage: Stage, path: Path) -> RecordingFile:
    one = stage.flight.save(stage.recorder, "manual", "by hand")
    path.write_bytes(b"".join(one.read()))
    file = RecordingFile(path)
    assert one.problem == file.problem
    stage.recorder.ring.clear()
    return file


def ticks(stage: Stage, seconds: int) -> None:
    for _ in range(seconds):
        stage.tell(hello(), SNAPSHOT)
        stage.tick()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    (tmp_path / "recordings").mkdir(mode=0o700)
    stage = Stage(tmp_path / "recordings", keep_seconds=900)
    ticks(stage, 10)
    assert (health(stage, "up"), health(stage, "gaps_total")) == (1, 0)
    return stage


def health(stage: Stage, name: str) -> float | None:
    return value(stage.exporter, f"kvscope_recording_{name}")


def test_a_disk_that_has_room_again_soon_costs_nothing(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(ring, "append_whole", failing(errno.ENOSPC))
        ticks(stage, 5)
        assert (health(stage, "up"), health(stage, "gaps_total")) == (0, 0)
    ticks(stage, 5)
    assert (health(stage, "up"), health(stage, "gaps_total")) == (1, 0)
    file = saved(stage, tmp_path / "whole.kvsr")
    assert file.problem is None
    pages = Playback(file).index.pages_ns
    assert max(after - before for before, after in pairwise(pages)) <= 10**9


def test_a_disk_that_stays_full_leaves_a_gap_that_every_command_tells(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MAX_HELD", 10)
    with monkeypatch.context() as patched:
        patched.setattr(ring, "append_whole", failing(errno.ENOSPC))
        ticks(stage, 40)
        assert (health(stage, "up"), health(stage, "gaps_total")) == (0, 1)
    ticks(stage, 5)
    assert (health(stage, "up"), health(stage, "gaps_total")) == (1, 1)
    page = stage.exporter.render()[0]
    path = tmp_path / "gap.kvsr"
    file = saved(stage, path)
    (gap,) = file.gaps
    assert 35 <= (gap.ends_ns - gap.begins_ns) / 1e9 <= 42
    assert gap.records > 40
    assert file.problem is not None
    assert "it has a gap from" in file.problem
    assert "No space left on device" in file.problem
    for command in (
        ["rec", "play"],
        ["why"],
        ["rec", "export", "--openmetrics", str(tmp_path / "out")],
    ):
        verbs = 2 if command[0] == "rec" else 1
        words = [*command[:verbs], str(path), *command[verbs:], *step(command)]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
        assert "it has a gap from" in result.stderr + result.stdout, command
    playback = Playback(file)  # after the gap it is known again
    playback.to_page(len(playback.index.pages) - 2)
    assert value(playback.exporter, "kvscope_recording_gaps_total") == 1
    assert lines_of(playback.exporter.render()[0])
    assert b"kvscope_recording_gaps_total 1.0" in page


def step(command: list[str]) -> list[str]:
    return ["--step", "5"] if "--openmetrics" in command else []


def test_records_that_do_not_fit_are_a_gap(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MAX_PENDING", 20)
    for _ in range(30):
        stage.tell(hello(), SNAPSHOT)
    monkeypatch.undo()
    assert health(stage, "gaps_total") == 1
    ticks(stage, 5)
    file = saved(stage, tmp_path / "gap.kvsr")
    (gap,) = file.gaps
    assert gap.reason == "more than 20 records waited to be written"
    assert gap.records >= 10


def test_what_waits_for_a_disk_that_hangs_takes_bounded_memory(stage: Stage) -> None:
    number = stage.recorder.stream("wire", "ipc:///engine.sock").stream
    before = resident_bytes()
    is_kept = []
    for seq in range(1, 70_000):
        emitted = list(range(seq << 10, (seq << 10) + 150))
        step = StepCompleted(1, 150, 0, 0, 0, 150, None, 1, 0, 0, emitted, [], 150, 0)
        is_kept.append(stage.recorder.add((number, Batch(seq, seq, [step]))))
    assert resident_bytes() - before < 200 << 20
    assert any(is_kept)
    assert not all(is_kept)
    assert health(stage, "up") == 0, "a gap, which is told"
    stage.recorder.ring.clear()


@pytest.mark.parametrize("damage", ["removed", "cut", "changed", "emptied"])
def test_a_part_that_somebody_removed_or_damaged_is_a_gap(
    stage: Stage, tmp_path: Path, damage: str
) -> None:
    for _ in range(3):
        stage.recorder.rotate()
        ticks(stage, 3)
    middle = stage.recorder.ring.segments[2].path
    assert middle is not None
    content = middle.read_bytes()
    changed = {
        "removed": None,
        "cut": content[: len(content) - 7],
        "changed": content[:-7] + bytes(7),
        "emptied": b"",
    }[damage]
    middle.unlink() if changed is None else middle.write_bytes(changed)
    one = stage.flight.save(stage.recorder, "manual", "by hand")
    assert one.path is not None
    file = RecordingFile(one.path)
    assert len(file.gaps) == 1
    assert Playback(file).index.pages
    stage.recorder.ring.clear()


def test_a_file_that_is_removed_while_it_is_written_is_begun_anew(
    stage: Stage, tmp_path: Path
) -> None:
    path = stage.recorder.ring.segments[-1].path
    assert path is not None
    path.unlink()
    ticks(stage, 5)
    assert health(stage, "gaps_total") == 1
    newest = stage.recorder.ring.segments[-1].path
    assert newest is not None
    assert newest.exists()
    assert Playback(RecordingFile(newest)).index.pages
    stage.recorder.ring.clear()


def test_a_disk_that_hangs_is_told_on_the_page(stage: Stage) -> None:
    stage.now_ns += 31 * SECOND  # without a turn of the recorder's thread, which waits
    assert health(stage, "up") == 0
    stage.tick()
    assert health(stage, "up") == 1
    stage.recorder.ring.clear()
