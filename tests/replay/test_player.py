"""`kvscope rec play`: a recording at moments that people write, and while it plays."""

import signal
from itertools import pairwise
from pathlib import Path
from random import Random

import httpx
import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner, Result

from kvscope.cli.app import app
from kvscope.replay.app import replay_app
from kvscope.replay.moment import shown
from kvscope.replay.player import Player
from kvscope.replay.resting import MOST, RestingPlaybacks
from kvscope_exporter.answers.tenants import TENANTS
from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.replay.playback import Playback
from tests.replay.recorded import lines_of, record_load
from tests.support.process import forked_kvscope
from tests.support.waiting import wait_for

SECOND = 10**9
JSON = {"Content-Type": "application/json"}


class Hand:
    """A clock that is moved by hand."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    path = tmp_path_factory.mktemp("played") / "load.kvsr"
    return path, record_load(path, seconds=4, seed=2)


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def player(load: tuple[Path, list[bytes]], hand: Hand) -> Player:
    return Player(load[0], hand)


def steps_of(page: bytes) -> float:
    line = next(
        line for line in page.decode().splitlines() if "step_duration_seconds_count" in line
    )
    return float(line.rpartition(" ")[2])


def test_it_begins_at_the_beginning_and_stands(player: Player, hand: Hand) -> None:
    status = player.status()
    assert (status.at, status.playing) == (status.begins, False)
    hand.seconds = 2.0
    assert player.status().at == status.begins


def test_it_plays_at_a_speed_up_to_the_end(player: Player, hand: Hand) -> None:
    player.play(2.0)
    hand.seconds = 1.0
    status = player.status()
    assert status.at - status.begins == pytest.approx(2.0, abs=1e-6)
    player.pause()
    hand.seconds = 60.0
    assert player.status().at == status.at
    player.play(1000.0)
    hand.seconds = 120.0
    ended = player.status()
    assert (ended.at, ended.playing) == (ended.ends, False)


def test_going_back_shows_what_was_there_before(
    player: Player, load: tuple[Path, list[bytes]]
) -> None:
    middle = len(load[1]) // 2
    pages = player._playback.index.pages
    player.seek(pages[-1].wall_ns)
    last = player.render()[0]
    player.seek(pages[middle].wall_ns)
    assert lines_of(player.render()[0]) == lines_of(load[1][middle])
    player.seek(pages[-1].wall_ns)
    assert lines_of(player.render()[0]) == lines_of(last)


def test_wherever_it_goes_it_shows_what_was_served(
    player: Player, load: tuple[Path, list[bytes]]
) -> None:
    pages = player._playback.index.pages
    player.start()
    random = Random(1)
    try:
        for _ in range(30):
            number = random.randrange(1, len(pages))  # the first is before the first record
            player.seek(pages[number].wall_ns)
            assert lines_of(player.render()[0]) == lines_of(load[1][number])
        wait_for(lambda: not player.preparing)
        assert 1 < len(player._resting._playbacks) <= MOST
    finally:
        player.close()


@pytest.mark.nightly
def test_playbacks_that_rest_are_few_and_spread(load: tuple[Path, list[bytes]]) -> None:
    playback = Playback(RecordingFile(load[0]))
    resting = RestingPlaybacks(playback.file, playback.again)
    begins_ns, ends_ns = playback.file.begins_ns, playback.file.ends_ns
    for share in [*range(100), *range(99, 0, -1)]:
        playback = resting.exchange(playback, begins_ns + (ends_ns - begins_ns) * share // 100)
    moments = [begins_ns, *(each.wall_ns for each in resting._playbacks), ends_ns]
    assert len(moments) == MOST + 2
    widest = max(after - before for before, after in pairwise(moments))
    assert widest < (ends_ns - begins_ns) // 4
    resting.stop()


def test_one_step_forward_and_back_is_one_batch(player: Player) -> None:
    player.seek(player._playback.index.pages[-2].wall_ns)
    player.step(1)
    here = player.status().at
    player.step(1)
    after = player.status().at
    player.step(-1)
    assert here < after
    assert player.status().at == here
    player.step(-(10**9))
    assert player.status().at >= player.status().begins


def test_a_moment_outside_is_the_nearest_end(player: Player) -> None:
    player.seek(0)
    assert player.status().at == player.status().begins
    player.seek(1 << 62)
    assert player.status().at == player.status().ends


def test_the_controls_are_paths(player: Player) -> None:
    client = TestClient(replay_app(player))
    begins = client.get("/api/replay").json()["begins"]
    sought = client.post("/api/replay/seek", params={"at": "+2s"}).json()
    assert sought["at"] == pytest.approx(begins + 2)
    assert client.post("/api/replay/play", params={"speed": 4}).json()["playing"] is True
    assert client.post("/api/replay/pause").json()["playing"] is False
    assert client.post("/api/replay/step", params={"by": 2}).json()["at"] > sought["at"]
    refused = client.post("/api/replay/seek", params={"at": "noon"})
    assert (refused.status_code, refused.text.count("\n")) == (400, 1)
    assert client.get(f"/api/{TENANTS.name}").json()["engines"][0]["answer"] is not None
    assert b"kvscope_kv_blocks" in client.get("/metrics").content
    assert "kvscope rec play" in client.get("/").text


def ask(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["rec", "play", *arguments])


def test_without_options_it_says_what_it_holds(load: tuple[Path, list[bytes]]) -> None:
    result = ask(str(load[0]))
    assert result.exit_code == 0, result.output
    player = Player(load[0])
    assert f"llama, {shown(player.file.begins_ns)} to {shown(player.file.ends_ns)} UTC" in (
        result.output
    )


@pytest.mark.parametrize("form", ["clock", "iso", "unix", "+", "-"])
def test_a_moment_can_be_written_in_five_ways(load: tuple[Path, list[bytes]], form: str) -> None:
    file = Player(load[0]).file
    moment = file.begins_ns + 3 * SECOND
    text = shown(moment)
    at = {
        "clock": text.split()[1],
        "iso": text.replace(" ", "T"),
        "unix": f"{moment / 1e9:.3f}",
        "+": "+3s",
        "-": f"-{(file.ends_ns - moment) / 1e9:.3f}s",
    }[form]
    result = ask(str(load[0]), "--at", at)
    assert result.exit_code == 0, result.output
    player = Player(load[0])
    player.seek(moment)
    near = steps_of(player.render()[0])
    assert abs(steps_of(result.output.encode()) - near) <= 3


@pytest.mark.parametrize("at", ["25:00:00", "yesterday", "+1h", "1", ""])
def test_a_moment_that_is_none_is_one_line(load: tuple[Path, list[bytes]], at: str) -> None:
    result = ask(str(load[0]), "--at", at)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert "--at" in result.stderr


def test_it_serves_the_recorded_server(load: tuple[Path, list[bytes]]) -> None:
    with forked_kvscope("rec", "play", str(load[0]), "--port", "0", "--at", "+3s") as process:
        url = process.find(r"(http\S+)/metrics; where it is")
        assert httpx.get(f"{url}/api/replay").json()["playing"] is False
        page = httpx.get(f"{url}/metrics").content
        seek = f"{url}/api/replay/seek"
        assert httpx.post(seek, params={"at": "-0s"}, headers=JSON).status_code == 200
        assert steps_of(httpx.get(f"{url}/metrics").content) > steps_of(page)
        other = {**JSON, "Origin": "http://evil.example"}
        assert httpx.post(f"{url}/api/replay/pause", headers=other).status_code == 403
        process.send(signal.SIGTERM)
        assert process.wait() == 0
