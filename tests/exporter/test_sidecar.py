"""A sidecar whose servers change: those that stay keep what they know; nothing is left behind."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from inspect import signature
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvscope.cli.run import run
from kvscope.serving.watch_list import WatchList
from kvscope_events.wire.endpoint import EndpointError
from kvscope_events.wire.publisher import WirePublisher
from kvscope_exporter.clock import Clock
from kvscope_exporter.configuration import KvEventsConfig, ServerConfig
from kvscope_exporter.sidecar.sidecar import Reloads, Sidecar
from tests.events.producers import Producer
from tests.support.pages import sample
from tests.support.waiting import started_since, wait_for

Servers = dict[str, ServerConfig]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    """Publishers red, green and blue, each with 10 steps behind it."""
    with ExitStack() as stack:
        made = {}
        for name in ("red", "green", "blue"):
            endpoint = f"ipc://{tmp_path}/{name}.sock"
            producer = Producer(name)
            publisher = WirePublisher(producer.bus, endpoint)
            publisher.start()
            stack.callback(publisher.stop)
            producer.begin()
            producer.step(10)
            made[name] = ServerConfig(name=name, events=(endpoint,))
        yield made


@pytest.fixture
def sidecar(servers: Servers) -> Iterator[Sidecar]:
    made = Sidecar([servers["red"], servers["green"]], compat=(), further=[Reloads(Clock())])
    made.start()
    yield made
    made.stop()


def steps_seen(sidecar: Sidecar, name: str) -> float | None:
    exporter = sidecar.server(name)
    assert exporter is not None
    return sample(exporter.render()[0].decode(), "kvscope_events_total", type="FirstToken")


def own_page(sidecar: Sidecar) -> str:
    return sidecar.own.render()[0].decode()


def test_an_unchanged_server_keeps_its_exporter_and_its_state(
    sidecar: Sidecar, servers: Servers
) -> None:
    wait_for(lambda: steps_seen(sidecar, "red") == 10, "all steps are folded")
    before = sidecar.server("red")
    changes = sidecar.watch([servers["blue"], servers["red"]], ())
    assert str(changes) == "1 added (blue), 0 rebuilt, 1 removed (green), 1 kept"
    assert sidecar.names() == ["blue", "red"]
    assert sidecar.server("red") is before
    assert sidecar.server("green") is None
    assert steps_seen(sidecar, "red") == 10
    wait_for(lambda: steps_seen(sidecar, "blue") == 10, "the new one is read")


def test_a_changed_server_begins_anew(sidecar: Sidecar, servers: Servers) -> None:
    wait_for(lambda: steps_seen(sidecar, "red") == 10, "all steps are folded")
    before = sidecar.server("red")
    red = msgspec.structs.replace(servers["red"], model_name="other")
    changes = sidecar.watch([red, servers["green"]], ())
    assert changes.rebuilt == ["red"]
    assert changes.kept == ["green"]
    assert sidecar.server("red") is not before
    wait_for(lambda: steps_seen(sidecar, "red") == 10, "it is read anew")
    assert sidecar.watch([red, servers["green"]], {"vllm"}).rebuilt == ["red", "green"]


def test_labels_are_prometheus_and_change_nothing_here(sidecar: Sidecar, servers: Servers) -> None:
    before = sidecar.server("red")
    red = msgspec.structs.replace(servers["red"], labels={"team": "search"})
    assert sidecar.watch([red, servers["green"]], ()).kept == ["red", "green"]
    assert sidecar.server("red") is before
    assert sidecar.labels("red") == {"team": "search"}
    assert sidecar.labels("nobody") == {}


def test_a_server_that_cannot_be_read_changes_nothing(
    sidecar: Sidecar, servers: Servers, tmp_path: Path
) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    threads = threading.enumerate()
    bad = ServerConfig(name="bad", events=(f"ipc://{open_to_all}/a.sock",))
    before = sidecar.server("red")
    with pytest.raises(EndpointError, match="others may write"):
        sidecar.watch([servers["blue"], bad], ())
    assert sidecar.names() == ["red", "green"]
    assert sidecar.server("red") is before
    wait_for(lambda: steps_seen(sidecar, "red") == 10, "it goes on")
    wait_for(lambda: not started_since(threads), "what had been built is closed again")


def test_the_page_of_the_process_moves_to_the_only_server_and_back(
    sidecar: Sidecar, servers: Servers
) -> None:
    assert "process_resident_memory_bytes" in own_page(sidecar)
    assert sample(own_page(sidecar), "kvscope_config_last_reload_successful") == 1
    assert "kvscope_source_up" not in own_page(sidecar)
    sidecar.watch([servers["red"]], ())
    assert sidecar.own is sidecar.server("red")
    wait_for(lambda: sample(own_page(sidecar), "kvscope_source_up") == 1, "red is read")
    assert "process_resident_memory_bytes" in own_page(sidecar)
    assert sample(own_page(sidecar), "kvscope_config_last_reload_successful") == 1
    red = sidecar.server("red")
    sidecar.watch([servers["red"], servers["blue"]], ())
    assert sidecar.server("red") is red
    assert red is not None
    assert "process_resident_memory_bytes" not in red.render()[0].decode()
    assert "process_resident_memory_bytes" in own_page(sidecar)


def test_a_reload_takes_nothing_from_a_page_for_a_moment(
    sidecar: Sidecar, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    sidecar.watch([servers["red"]], ())
    taken_away: list[object] = []
    monkeypatch.setattr(sidecar.own.registry, "unregister", taken_away.append)
    sidecar.watch([servers["red"]], ())
    assert taken_away == []


def test_servers_that_are_removed_leave_no_thread(sidecar: Sidecar, servers: Servers) -> None:
    sidecar.watch([servers["red"]], ())
    threads = threading.enumerate()
    for _ in range(5):
        sidecar.watch([servers["green"], servers["blue"]], ())
        sidecar.watch([servers["red"]], ())
    ended = sum(not thread.is_alive() for thread in threads)
    assert len(started_since(threads)) <= ended, "each took the place of another"


def listening(port: int, **changes: Any) -> ServerConfig:
    stream = KvEventsConfig(endpoint=f"tcp://127.0.0.1:{port}", bind=True)
    return ServerConfig(name="kv", kind="vllm", kv_events=(stream,), **changes)


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_port_of_ours_can_be_given_to_a_server_that_has_changed(
    sidecar: Sidecar, servers: Servers
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    sidecar.watch([servers["red"], listening(port)], ())
    before = sidecar.server("kv")
    assert accepts(port)
    changes = sidecar.watch([servers["red"], listening(port, model_name="m")], ())
    assert changes.rebuilt == ["kv"]
    assert accepts(port)
    bad = ServerConfig(name="bad", events=("ipc:///proc/none/a.sock", "tcp://127.0.0.1:0"))
    with pytest.raises(EndpointError, match="port 0 cannot be reached"):
        sidecar.watch([servers["red"], listening(port, model_name="other"), bad], ())
    assert accepts(port), "the one before listens again"
    assert sidecar.names() == ["red", "kv"]
    assert sidecar.server("kv") is not before


def test_beside_a_servers_own_page_none_of_its_names_is_repeated(servers: Servers) -> None:
    """Scraped together, both would be in every sum over vLLM's names."""
    given = WatchList(events=(f"red={servers['red'].events[0]}",))
    wanted = given.read()
    watched = Sidecar(wanted.servers, compat=given.sets(wanted))
    watched.start()
    try:
        wait_for(lambda: steps_seen(watched, "red") == 10, "all steps are folded")
        assert "vllm:" not in own_page(watched)
    finally:
        watched.stop()
    assert signature(run).parameters["compat"].default == "none"


def test_a_reload_that_fails_by_a_bug_counts_as_one_that_failed(servers: Servers) -> None:
    given = WatchList(events=(f"red={servers['red'].events[0]}",))
    wanted = given.read()
    watched, reloads = Sidecar(wanted.servers, compat=given.sets(wanted)), Reloads(Clock())
    broken = WatchList(events=(17,))  # type: ignore[arg-type]
    with pytest.raises(Exception, match=r"int"):
        broken.reload(watched, reloads, wanted)
    shown = {family.name: family.samples for family in reloads.collect()}
    assert shown["kvscope_config_last_reload_successful"][0].value == 0
    assert watched.names() == ["red"]
    given.reload(watched, reloads, wanted)
    shown = {family.name: family.samples for family in reloads.collect()}
    assert shown["kvscope_config_last_reload_successful"][0].value == 1
