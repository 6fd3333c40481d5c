"""`kvscope why URL --at`: a past moment of a running server, from its own recordings."""

import json
import threading
from collections.abc import Iterator

import httpx
import pytest
import uvicorn
from typer.testing import CliRunner, Result

from kvscope.cli.app import app
from kvscope_exporter.clock import Clock
from kvscope_exporter.recorder.flight import Flight
from kvscope_exporter.recorder.recorder import Limits, Recorder
from kvscope_exporter.web.metrics import bare_app
from kvscope_exporter.web.recordings import recordings_router
from tests.support.http_peer import json as answer
from tests.support.http_peer import serving
from tests.support.waiting import wait_for
from tests.why.stage import GIB, Stage, chat, play


def ask(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["why", *arguments])


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server in simulated time: a neighbour comes after two minutes of load,
    and half a minute later a recording was saved. What is kept has another half minute."""
    limits = Limits(keep_ns=3600 * 10**9, keep_bytes=1 << 30)
    flights: list[Flight] = []

    def recorder(clock: Clock) -> Recorder:
        flights.append(Flight(limits, None, {}, clock))
        return flights[0].recorder("paced", [])

    stage = Stage(recorded_by=recorder)
    stage.exporter.start()
    play(stage, chat(1, 120), 120)
    stage.gpu.neighbour_bytes = int(7.2 * GIB)
    play(stage, chat(2, 30), 30)
    stage.exporter.render()
    assert stage.recorder is not None
    flights[0].save(stage.recorder, "out_of_memory", "18 steps ran out of memory")
    play(stage, chat(3, 30), 30)
    stage.exporter.render()
    web = bare_app("kvscope")
    web.include_router(recordings_router(flights[0], lambda _name: stage.exporter))
    config = uvicorn.Config(web, port=0, log_config=None, access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started, "the server listens")
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        stage.exporter.stop()


def saved(url: str) -> list[str]:
    return [each["trigger"] for each in httpx.get(f"{url}/api/recordings").json()]


def test_a_saved_recording_has_the_moment(url: str) -> None:
    before = saved(url)
    result = ask(url, "--at", "1970-01-01T00:02:28")
    assert result.exit_code == 0, result.output
    head, cause = result.output.splitlines()[:2]
    assert head == "At 1970-01-01 00:02:28.000 UTC:"
    assert "another process (pid 4242) took 7.2 GiB" in cause
    assert saved(url) == before


def test_what_is_kept_is_saved_for_a_later_moment(url: str) -> None:
    result = ask(url, "--at", "00:02:55", "-o", "json")
    assert json.loads(result.output)["engines"][0]["answer"]["chain"][0]["kind"] == "neighbour"
    assert saved(url)[0] == "manual"


def test_a_moment_before_everything_names_where_to_look(url: str) -> None:
    result = ask(url, "--at", "1969-12-31T23:00:00")
    assert result.exit_code == 2
    assert "no recording has 1969-12-31T23:00:00, and what is kept" in result.stderr
    assert f"see {url}/api/recordings" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_server_without_recordings_is_one_line() -> None:
    with serving({"/api/recordings": answer('{"x": 1}')}) as peer:
        result = ask(peer.url, "--at", "03:12")
    assert result.exit_code == 2
    assert "/api/recordings: not a list of them" in result.stderr
