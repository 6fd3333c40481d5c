"""The server or recording that a command asks: as named in any form, found, or refused."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from kvscope import places
from kvscope.cli.app import app
from kvscope.places import server_named, source_named
from kvscope.replay.app import replay_app
from kvscope.replay.player import Player
from kvscope_exporter.clock import Clock
from kvscope_exporter.configuration import ServerConfig
from kvscope_exporter.sidecar.sidecar import Sidecar
from kvscope_exporter.web.http_server import HttpServer
from kvscope_exporter.web.sidecar_app import sidecar_app
from tests.commands.test_why_command import recorder_of
from tests.replay.recorded import save
from tests.support.http_peer import json, serving
from tests.why.stage import Stage, chat, play

FINDING = ("why", "top --once", "advise", "tenants", "admin forget", "admin gpu-release")


def kvscope(line: str, *more: str) -> Result:
    return CliRunner().invoke(app, [*line.split(), *more])


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> str:
    stage = Stage(recorded_by=recorder_of)
    stage.exporter.start()
    play(stage, chat(1, 60), 60)
    stage.exporter.render()
    path = tmp_path_factory.mktemp("places") / "paced.kvsr"
    assert stage.recorder is not None
    save(stage.recorder, path)
    stage.exporter.stop()
    return str(path)


@pytest.fixture
def replayed(recording: str) -> Iterator[str]:
    """The port of a kvscope with one server, called paced."""
    player = Player(Path(recording))
    with HttpServer(replay_app(player), "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.port}"
    player.close()


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://h:1/kv", "http://h:1/kv"),
        ("127.0.0.1:8010", "http://127.0.0.1:8010"),
        ("localhost:8010", "http://localhost:8010"),
        (":8010", "http://127.0.0.1:8010"),
        ("[::1]:8010", "http://[::1]:8010"),
        ("10.0.0.7:8010/kv", "http://10.0.0.7:8010/kv"),
        ("host", "http://host:8010"),
        ("gpu-7.example", "http://gpu-7.example:8010"),
    ],
)
def test_a_server_may_be_named_without_a_scheme(given: str, url: str) -> None:
    assert server_named(given) == source_named(given) == url


@pytest.mark.parametrize("given", ["incident.kvsr", "./host", "a/b", "~/x.kvsr", "two words"])
def test_what_can_be_no_server_is_a_file(given: str) -> None:
    assert source_named(given) == Path(given)
    with pytest.raises(typer.Exit):
        server_named(given)


def test_a_file_that_exists_comes_before_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert source_named("host") == "http://host:8010"
    assert "no file host is here: asking http://host:8010" in capsys.readouterr().err
    (tmp_path / "host").touch()
    (tmp_path / "h:1").touch()
    assert source_named("host") == Path("host")
    assert source_named("h:1") == Path("h:1")


@pytest.mark.parametrize("place", ["ftp://h:1", "http://[", "http://h:99999", "h:99999"])
def test_what_is_no_address_is_refused_in_one_line(place: str) -> None:
    result = kvscope("why", place)
    assert result.exit_code == 2
    assert result.output.startswith("kvscope: ")
    assert result.output.count("\n") == 1


@pytest.mark.parametrize("line", FINDING)
def test_without_a_server_both_places_and_the_next_command_are_named(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = [f"http://127.0.0.1:{free_port()}" for _ in range(2)]
    monkeypatch.setattr(places, "HERE", here)
    result = kvscope(line)
    assert result.exit_code == 2
    assert all(url in result.output for url in here)
    assert "`kvscope run -- vllm serve MODEL`" in result.output
    assert f"`kvscope {line.removesuffix(' --once')} http://HOST:PORT`" in result.output


@pytest.mark.parametrize("line", FINDING)
def test_the_first_kvscope_of_this_machine_is_asked(
    line: str, replayed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving({"/live": json("{}"), "/health": json("{}")}) as other:
        monkeypatch.setattr(places, "HERE", [other.url, replayed])
        result = kvscope(line)
    assert f"kvscope: asking {replayed}" in result.output
    assert other.url not in result.output


@pytest.mark.parametrize("line", ["why", "why -o json", "advise", "tenants", "top --once"])
def test_a_target_that_is_not_there_is_an_error_that_names_those_that_are(
    line: str, replayed: str
) -> None:
    result = kvscope(line, replayed, "--target", "nope")
    assert result.exit_code == 2
    assert "no server 'nope' here; known: paced" in result.output
    assert kvscope(line, replayed, "--target", "paced").exit_code == 0


@pytest.mark.parametrize("line", ["why", "top --once"])
def test_a_target_that_is_not_in_a_recording_is_an_error(line: str, recording: str) -> None:
    result = kvscope(line, recording, "--target", "nope")
    assert result.exit_code == 2
    assert f"--target nope: {recording} is a recording of paced alone" in result.output
    assert kvscope(line, recording, "--target", "paced").exit_code == 0


def test_a_sidecar_says_why_it_knows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    watched = Sidecar([ServerConfig(name="vllm", url=url)], clock=Clock())
    watched.start()
    with HttpServer(sidecar_app(watched), "127.0.0.1", 0) as server:
        result = kvscope("why", f":{server.port}")
    watched.stop()
    assert result.exit_code == 2
    assert f"nothing is known yet: {url}/metrics: Connection refused" in result.output


def test_a_sidecar_of_a_kvscope_is_refused(replayed: str) -> None:
    result = kvscope("sidecar --port 0 --no-gpu --url", replayed)
    assert result.exit_code == 2
    assert "already exports these metrics" in result.output.splitlines()[-1]


@pytest.mark.parametrize("at", ["25:99", "03:60", "24:00:00", "soon"])
def test_what_is_no_time_is_said_to_be_none(at: str, replayed: str, recording: str) -> None:
    for place in (replayed, recording):
        result = kvscope(f"why --at {at}", place)
        assert result.exit_code == 2
        assert f"--at: '{at}' is not a time: expected 12:50:40" in result.output
