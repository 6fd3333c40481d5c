"""`kvscope why`: a server that answers, one that does not, and recordings."""

from collections.abc import Iterator

import msgspec
import pytest
from typer.testing import CliRunner, Result

from kvscope.cli.app import app
from kvscope_exporter.answers.diagnosis.question import WHY
from kvscope_exporter.clock import Clock
from kvscope_exporter.recorder.recorder import Limits, Recorder
from kvscope_exporter.recorder.ring import Ring
from tests.replay.recorded import save
from tests.support.http_peer import json, serving
from tests.why.stage import GIB, Stage, chat, play

LIMITS = Limits(keep_ns=3600 * 10**9, keep_bytes=1 << 30)
PATH = "/api/why"


def ask(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["why", *arguments])


def recorder_of(clock: Clock) -> Recorder:
    ring = Ring(LIMITS.keep_ns, None, "paced")
    return Recorder("paced", ring, LIMITS, clock=clock, compat=[], settings={})


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """Two minutes as usual, then a neighbour for one."""
    stage = Stage(recorded_by=recorder_of)
    stage.exporter.start()
    play(stage, chat(1, 120), 120)
    assert stage.recorder is not None
    stage.gpu.neighbour_bytes = int(7.2 * GIB)
    play(stage, chat(2, 60), 60)
    stage.exporter.render()
    yield stage
    stage.exporter.stop()


@pytest.fixture(scope="module")
def recording(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("why") / "neighbour.kvsr"
    assert stage.recorder is not None
    save(stage.recorder, path)
    return str(path)


def test_cause_chain_remedy_and_what_was_not_seen_are_printed(stage: Stage) -> None:
    body = msgspec.json.encode(stage.exporter.answer(WHY)).decode()
    with serving({PATH: json(body)}) as peer:
        result = ask(peer.url)
        assert ask(peer.url, "-o", "json").output.strip() == body
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == (
        "00:02:01  another process (pid 4242) took 7.2 GiB of GPU 0  [cause, confidence high]"
    )
    assert "steps ran out of device memory" in lines[1]
    assert any(line.startswith("Do:       End pid 4242") for line in lines)
    assert any(line.startswith("Ruled out: ") for line in lines)
    assert all(len(line) <= 100 for line in lines)


def test_a_recording_is_asked_at_its_end_or_at_a_moment(recording: str) -> None:
    result = ask(recording)
    assert result.exit_code == 0, result.output
    head, cause = result.output.splitlines()[:2]
    assert head.startswith("At 1970-01-01 00:03:0")
    assert "pid 4242" in cause
    before = ask(recording, "--at", "+110s")
    assert "Nothing is wrong" in before.output
    assert '"kind":"neighbour"' in ask(recording, "-o", "json").output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/nonexistent.kvsr"], "/nonexistent.kvsr: cannot be read: No such"),
        (["http://127.0.0.1:9"], "is a kvscope running there"),
        (["http://127.0.0.1:9", "--at", "+1s"], "--at +1s: of a server, give a time of day"),
    ],
)
def test_what_cannot_be_asked_is_one_line(arguments: list[str], message: str) -> None:
    result = ask(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("at", ["noon", "+9h"])
def test_a_moment_outside_the_recording_is_one_line(recording: str, at: str) -> None:
    result = ask(recording, "--at", at)
    assert result.exit_code == 2
    assert result.stderr.startswith("kvscope: --at: ")
    assert len(result.stderr.splitlines()) == 1
