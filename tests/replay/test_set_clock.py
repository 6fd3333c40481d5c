"""A wall clock that is set, forward or back, while a server is recorded."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from kvscope.cli.app import app
from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.replay.playback import Playback
from tests.events.producers import SNAPSHOT, hello
from tests.replay.flights import SECOND, Stage
from tests.replay.recorded import lines_of

HOUR = 3600 * SECOND
LAST = 10
"""Seconds after the clock was set for the last time."""
UP = "kvscope_source_up{"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments])


def recorded(folder: Path, steps: list[tuple[int, int]], keep_seconds: int = 900) -> Path:
    """steps: seconds, and by how much the clock is then set."""
    stage = Stage(None, keep_seconds=keep_seconds)
    stage.tell(hello(), SNAPSHOT)
    for seconds, ahead_ns in [*steps, (LAST, 0)]:
        for _ in range(seconds):
            stage.tell()
            stage.tick()
        stage.ahead_ns += ahead_ns
    path = folder / "set.kvsr"
    path.write_bytes(b"".join(stage.flight.save(stage.recorder, "manual", "by hand").read()))
    stage.recorder.ring.clear()
    return path


@pytest.mark.parametrize(
    "steps",
    [
        [(20, HOUR), (20, -3 * HOUR), (20, 0)],
        [(20, HOUR)],
        [(5, -HOUR)] * 5,
        [(10, -SECOND // 2)] * 4,  # less than is corrected
        [(0, -3 * HOUR)],
    ],
    ids=str,
)
def test_every_command_reads_a_recording_whose_clock_was_set(
    tmp_path: Path, steps: list[tuple[int, int]]
) -> None:
    path = recorded(tmp_path, steps)
    seconds = sum(each for each, _ in steps) + LAST
    file = RecordingFile(path)
    assert file.problem is None
    assert (file.ends_ns - file.begins_ns) / SECOND == pytest.approx(seconds, abs=3)

    why = run("why", path)
    assert why.exit_code == 0, why.output
    assert "nothing is known yet" not in why.output
    for moment in ("+5s", "-5s"):
        page = run("rec", "play", path, "--at", moment)
        assert page.exit_code == 0, page.output
        assert UP in page.output, moment
    exported = run("rec", "export", path, "--openmetrics", tmp_path / "out", "--step", "5")
    assert exported.exit_code == 0, exported.output
    lines = (tmp_path / "out").read_text().splitlines()
    times = [float(line.split()[-1]) for line in lines if line.startswith(UP)]
    assert times == sorted(times)
    assert len(times) >= seconds // 5 - 1


@settings(deadline=None, max_examples=15)
@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(-(10**6), 10**6).map(lambda s: s * SECOND // 10)),
        max_size=4,
    )
)
def test_no_moment_lies_before_an_earlier_one(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]]
) -> None:
    path = recorded(tmp_path_factory.mktemp("set"), steps)
    playback = Playback(RecordingFile(path))
    moments = playback.index.pages_ns
    assert moments == sorted(moments)
    file = playback.file
    assert file.begins_ns - 2 * SECOND <= moments[0]
    assert moments[-1] <= file.ends_ns + SECOND
    seconds = sum(each for each, _ in steps) + LAST
    assert (file.ends_ns - file.begins_ns) / SECOND == pytest.approx(seconds, abs=8)


def test_what_is_kept_does_not_age_when_the_clock_is_set_forward(tmp_path: Path) -> None:
    stage = Stage(tmp_path, keep_seconds=300)
    stage.tell(hello(), SNAPSHOT)
    for _ in range(200):
        stage.tick()
    before = len(stage.recorder.ring.segments)
    stage.ahead_ns += 24 * HOUR
    stage.tick()
    assert len(stage.recorder.ring.segments) == before + 1
    stage.recorder.ring.clear()


def test_a_page_before_the_clock_was_set_is_the_same_again(tmp_path: Path) -> None:
    stage = Stage(None, keep_seconds=900)
    served = []
    for number in range(30):
        stage.ahead_ns += {10: HOUR, 20: -3 * HOUR}.get(number, 0)
        stage.bus.emit(hello())
        stage.bus.emit(SNAPSHOT)
        stage.bus.flush()
        served.append(stage.exporter.render()[0])
        stage.tick()
    path = tmp_path / "set.kvsr"
    path.write_bytes(b"".join(stage.flight.save(stage.recorder, "manual", "by hand").read()))
    playback = Playback(RecordingFile(path))
    assert len(playback.index.pages) >= len(served)
    for number, page in enumerate(served):
        playback.to_page(number)
        assert of_the_engine(playback.exporter.render()[0]) == of_the_engine(page)


def of_the_engine(page: bytes) -> list[str]:
    """Without the memory of this host, on which it does not run."""
    return [line for line in lines_of(page) if "kvscope_host_memory_" not in line]
