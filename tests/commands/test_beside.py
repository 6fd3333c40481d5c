"""The page beside a command: what is said about observers; its end is not the command's."""

import logging
from pathlib import Path

import httpx
import pytest

from kvscope.options.listen import PageAccess
from kvscope.run.background_server import Beside
from kvscope.run.discovered import Sightings
from kvscope.serving.protection import Protection
from kvscope_events.bus import Subscription
from kvscope_events.events import ObserverStopped
from kvscope_exporter.sources.pipeline import InProcessSource
from kvscope_exporter.targets.exporter import Exporter
from kvscope_exporter.targets.target import Target
from tests.exporter.page import FIXED_CLOCK, hello, put

OPEN = Protection(PageAccess())


def test_a_page_that_ends_is_one_line_and_the_command_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    page = Beside(
        "vllm", f"ipc://{tmp_path}/sockets/*", "127.0.0.1", 0, {"vllm"}, None, 60.0, protection=OPEN
    )
    page.look()
    assert httpx.get(f"{page.url}/metrics").status_code == 200
    assert caplog.text == ""
    page._server.stop()
    page.look()
    page.look()
    assert caplog.text.count("metrics are no longer served") == 1
    page._sidecar.stop()


def test_a_port_in_use_is_known_at_once(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/sockets/*"
    first = Beside("vllm", endpoint, "127.0.0.1", 0, {"vllm"}, None, 60.0, protection=OPEN)
    port = int(first.url.rpartition(":")[2])
    with pytest.raises(OSError, match="in use"):
        Beside("vllm", endpoint, "127.0.0.1", port, {"vllm"}, None, 60.0, protection=OPEN)
    first._server.stop()
    first._sidecar.stop()


class Watched:
    """An exporter of one stream, looked at by a clock that the test sets."""

    def __init__(self) -> None:
        self.subscription = Subscription(8)
        target = Target(InProcessSource(self.subscription), compat=(), clock=FIXED_CLOCK)
        self.exporter = Exporter([target], clock=FIXED_CLOCK)
        self.seconds = 0.0
        self.sightings = Sightings(self.exporter, 300.0, lambda: self.seconds)

    def look(self) -> None:
        self.exporter.render()
        self.sightings.look()


def test_each_observer_is_named_once_when_it_comes_and_when_it_stops(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watched = Watched()
    with caplog.at_level(logging.INFO):
        put(watched.subscription, 0, 0, hello(worker="3"))
        watched.look()
        watched.look()
        put(watched.subscription, 1, 0, hello(worker="3"), ObserverStopped("a reason"))
        watched.look()
        watched.look()
    assert caplog.text.count("observed: kvscope 0.1.0, model demo, engine 0, worker 3") == 2
    assert caplog.text.count("no longer observed") == 1
    assert "a reason" in caplog.text


def test_silence_is_noted_once_and_only_where_nobody_ever_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    silent, heard = Watched(), Watched()
    put(heard.subscription, 0, 0, hello())
    for watched in (silent, heard):
        watched.look()
        watched.seconds = 299.0
        watched.look()
        assert "no observer" not in caplog.text
    for watched in (heard, silent, silent):
        watched.seconds = 1000.0
        watched.look()
    assert caplog.text.count("no observer has reported from the command after 300 s") == 1
