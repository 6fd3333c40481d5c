"""Log lines about servers that end, fall silent and come back; each once."""

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvscope_exporter.sidecar.departures import Departures
from kvscope_exporter.targets.exporter import Exporter
from tests.exporter.test_presence import Scene, comes_to
from tests.support.http_peer import serving, text
from tests.support.waiting import wait_for


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    tmp_path.chmod(0o700)
    made = Scene(tmp_path)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kvscope")


def watched(scene: Scene, exporter: Exporter) -> Departures:
    return Departures(lambda: {"llama": exporter}, scene.clock)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    messages = [r.getMessage() for r in caplog.records if r.name == "kvscope"]
    caplog.clear()
    return messages


def test_an_engine_that_ends_and_comes_back_is_logged_once_each(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    exporter = scene.watch()
    departures = watched(scene, exporter)
    departures.look()
    assert said(caplog) == []
    engine = scene.engine(model_name="meta\x1b[2J\nllama", pid=4242)
    comes_to(exporter, "ready")
    departures.look()
    departures.look()
    (ready,) = said(caplog)
    assert ready.startswith("llama: the server is ready, after 0 s as expected")
    scene.ahead_ns += 3 * 3600 * 10**9
    wait_for(lambda: exporter.targets[0].source.up, "its next heartbeat")
    departures.look()
    engine.end()
    scene.fall_silent()
    departures.look()
    departures.look()
    gone, server = said(caplog)
    assert "engine 0 of meta\\x1b[2J\\nllama (pid 4242, ipc://" in gone
    assert "has gone after 3 h 0 min; its counters keep their last values" in gone
    assert "`kvscope admin forget`" in gone
    assert server.startswith("llama: the server is gone, after 3 h 0 min as ready")
    before = exporter.targets[0].source.session
    scene.engine(model_name="meta\x1b[2J\nllama", pid=4243)
    # Its heartbeat may come first, which makes it ready with the state of the former one.
    wait_for(lambda: exporter.targets[0].source.session != before, "its first batch is taken")
    comes_to(exporter, "ready")
    scene.fall_silent()
    wait_for(lambda: exporter.targets[0].source.up, "its next heartbeat")
    departures.look()
    again, server = said(caplog)
    assert again.endswith("(pid 4243, " + engine.endpoint + ") was started again")
    assert "the server is ready, after" in server


def test_an_engine_that_hangs_falls_silent_and_then_goes(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    exporter = scene.watch()
    departures = watched(scene, exporter)
    engine = scene.engine()
    comes_to(exporter, "ready")
    departures.look()
    engine.end()
    path = engine.endpoint.removeprefix("ipc://")
    with socket.socket(socket.AF_UNIX) as stopped:  # a process that accepts and says nothing
        stopped.bind(path)
        stopped.listen()
        scene.fall_silent()
        said(caplog)
        departures.look()
        departures.look()
        silent, server = said(caplog)
        assert "has fallen silent after" in silent
        assert "its process still holds the endpoint" in silent
        assert "the server is gone" in server
    departures.look()
    departures.look()
    (gone,) = said(caplog)
    assert gone.endswith("has gone")


def test_a_server_that_is_read_from_its_page_is_logged_too(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    with serving({"/metrics": text("vllm:num_requests_running 1\n")}) as peer:
        exporter = scene.watch(events=(), url=peer.url, kind="vllm")
        departures = watched(scene, exporter)
        exporter.render()
        departures.look()
    scene.fall_silent()
    exporter.render()
    departures.look()
    assert [line.partition(",")[0] for line in said(caplog)] == [
        "llama: the server is ready",
        "llama: the server is gone",
    ]


def test_a_server_that_flaps_does_not_fill_the_log(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    exporter = scene.watch()
    departures = watched(scene, exporter)
    engine = scene.engine()
    for ready in (True, False) * 5:
        engine.say(ready=ready)
        comes_to(exporter, "ready" if ready else "loading")
        departures.look()
    assert len(said(caplog)) == 2
