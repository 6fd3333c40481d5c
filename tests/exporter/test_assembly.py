"""From a server's configuration to its page: its own page, its streams, and what it is asked."""

import json as json_
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvscope_events.wire.endpoint import EndpointError
from kvscope_exporter.clock import Clock
from kvscope_exporter.configuration import (
    ConfigurationError,
    FileValue,
    KvEventsConfig,
    ServerConfig,
    TlsConfig,
)
from kvscope_exporter.sidecar.assembly import exporter_of
from kvscope_exporter.targets.exporter import Exporter
from tests.exporter.page import value
from tests.kv_events.dialects import Stored
from tests.kv_events.publisher import Publisher
from tests.scrape.cases.vllm import CURRENT_PAGE
from tests.support.http_peer import (
    Certificate,
    Peer,
    json,
    make_certificate,
    serving,
    text,
)
from tests.support.waiting import wait_for

STORED = Stored([1, 2, 3])


@contextmanager
def running(config: ServerConfig) -> Iterator[Exporter]:
    exporter = exporter_of(config, (), Clock())
    exporter.start()
    try:
        yield exporter
    finally:
        exporter.stop()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def resident(exporter: Exporter, **labels: str) -> float | None:
    return value(exporter, "kvscope_kv_tier_blocks", tier="device", **labels)


def sources(*ports: int, host: str = "*", **changes: object) -> str:
    """vLLM's answer at /kv_event_sources."""
    source = {"enable_kv_cache_events": True, "publisher": "zmq", "topic": "kv-events"}
    ranks = {
        str(rank): {**source, "endpoint": f"tcp://{host}:{port}", "replay_endpoint": None}
        for rank, port in enumerate(ports)
    }
    return json_.dumps({rank: {**fields, **changes} for rank, fields in ranks.items()})


@pytest.fixture
def peer() -> Iterator[Peer]:
    with serving({"/metrics": text(CURRENT_PAGE)}) as made:
        yield made


def test_a_url_is_read_and_its_kind_found_out(peer: Peer) -> None:
    with running(ServerConfig(name="a", url=f"{peer.url}/")) as exporter:
        assert value(exporter, "kvscope_kv_capacity_blocks", model_name="m") == 180
        assert value(exporter, "kvscope_source_up", source="page") == 1
    assert set(peer.asked) == {"/metrics"}, "nothing else is asked for"


def test_a_stream_is_labelled_as_the_page_is(peer: Peer) -> None:
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    publisher = Publisher(endpoint)
    config = ServerConfig(
        name="a", kind="vllm", url=peer.url, kv_events=(KvEventsConfig(endpoint=endpoint),)
    )
    with running(config) as exporter:
        wait_for(lambda: value(exporter, "kvscope_source_up", source="kv_events"), "connected")
        publisher.joined()
        publisher.say(STORED)
        wait_for(lambda: resident(exporter, model_name="m", engine="0") == 3, "named by its page")
    publisher.close()


def test_a_configured_name_wins() -> None:
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    publisher = Publisher(endpoint)
    config = ServerConfig(
        name="a", kind="sglang", model_name="x", kv_events=(KvEventsConfig(endpoint=endpoint),)
    )
    with running(config) as exporter:
        wait_for(lambda: value(exporter, "kvscope_source_up", source="kv_events"), "connected")
        publisher.joined()
        publisher.say(STORED)
        wait_for(lambda: resident(exporter, model_name="x") == 3, "named by its configuration")
    publisher.close()


def test_a_vllm_is_asked_for_its_streams_until_it_says(peer: Peer) -> None:
    ports = [free_port(), free_port()]
    publishers = [Publisher(f"tcp://127.0.0.1:{port}") for port in ports]
    with running(ServerConfig(name="a", url=peer.url, kv_events="auto")) as exporter:
        wait_for(lambda: "/kv_event_sources" in peer.asked, "asked")
        assert exporter.targets == ()
        peer.answers["/kv_event_sources"] = json(sources(*ports))
        wait_for(lambda: len(exporter.targets) == 2, "both ranks are found")
        wait_for(lambda: all(t.source.up for t in exporter.targets), "connected")
        publishers[1].joined()
        publishers[1].say(STORED)
        wait_for(lambda: resident(exporter, model_name="m", engine="1") == 3, "read")
    for publisher in publishers:
        publisher.close()


def test_an_sglang_is_asked_for_its_streams() -> None:
    base = free_port()
    said = {
        "publisher": "zmq",
        "endpoint_host": "*",
        "endpoint_port_base": base,
        "topic": "kv-events",
        "dp_size": 1,
    }
    page = 'sglang:max_total_num_tokens{model_name="q",engine_type="unified",tp_rank="0"} 64\n'
    publisher = Publisher(f"tcp://127.0.0.1:{base}")
    info = json(json_.dumps({"kv_events": said, "more": [1]}))
    with (
        serving({"/metrics": text(page), "/server_info": info}) as peer,
        running(ServerConfig(name="a", url=peer.url, kv_events="auto")) as exporter,
    ):
        wait_for(lambda: [t for t in exporter.targets if t.source.up], "found")
        publisher.joined()
        publisher.say(STORED)
        wait_for(lambda: resident(exporter, model_name="q") == 3, "read")
    publisher.close()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (json(sources(5557, publisher="null")), "it publishes no KV events; switch them on"),
        (json(sources(5557, enable_kv_cache_events=False)), "it publishes no KV events"),
        (json("{}"), "it publishes no KV events"),
        (json(sources(5557, host="10.9.8.7")), "not a port that it opens on all addresses"),
        (json(sources(99999)), "not a port that it opens on all addresses"),
        (json(sources(1, endpoint="ipc:///etc/x")), "not a port that it opens on all addresses"),
        (json("[]"), "/kv_event_sources cannot be read: Expected `object`, got `array`"),
        (json(sources(5557).replace('"0"', '"x"')), "/kv_event_sources cannot be read"),
        (json("{"), "/kv_event_sources cannot be read"),
        (text("<html>", "text/html"), "/kv_event_sources cannot be read"),
        (text("x" * 2_000_000), "is larger than 1 MiB"),
        (text("", status=302), "answered 302"),
        (text("", status=500), "answered 500"),
    ],
)
def test_an_answer_that_leads_nowhere_is_said_once(
    peer: Peer, caplog: pytest.LogCaptureFixture, answer: tuple[int, str, bytes], says: str
) -> None:
    peer.answers["/kv_event_sources"] = answer
    with running(ServerConfig(name="a", url=peer.url, kv_events="auto")) as exporter:
        wait_for(lambda: says in caplog.text, f"{says}: {caplog.text}")
        wait_for(lambda: peer.asked.count("/kv_event_sources") > 1, "asked again")
        assert exporter.targets == ()
        assert value(exporter, "kvscope_kv_capacity_blocks") == 180, "its page is read all the same"
    assert len([line for line in caplog.messages if peer.url in line]) == 1


def test_a_token_in_a_file_is_sent_and_may_change(peer: Peer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("Bearer one\n")
    headers: dict[str, str | FileValue] = {
        "Authorization": FileValue(file=str(token)),
        "X-Team": "search",
    }
    with running(ServerConfig(name="a", url=peer.url, headers=headers)) as exporter:
        assert value(exporter, "kvscope_source_up", source="page") == 1
        assert peer.headers[-1]["Authorization"] == "Bearer one"
        assert peer.headers[-1]["X-Team"] == "search"
        token.write_text("Bearer two\n")
        wait_for(
            lambda: (exporter.render(), peer.headers[-1]["Authorization"] == "Bearer two")[1],
            "the next page is asked for with the new one",
        )
        token.unlink()
        wait_for(lambda: value(exporter, "kvscope_source_up", source="page") == 0, "it is gone")
        assert value(exporter, "kvscope_page_errors_total", kind="headers") >= 1  # type: ignore[operator]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def tls_of(certificate: Certificate, **changes: object) -> TlsConfig:
    return TlsConfig(**{"ca": str(certificate.file), **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tls", "up"),
    [
        (None, 0),
        ({}, 1),
        ({"server_name": "server.example"}, 1),
        ({"server_name": "other.example"}, 0),
        ({"ca": None, "verify": False}, 1),
    ],
)
def test_a_certificate_is_checked(
    certificate: Certificate, tls: dict[str, object] | None, up: int
) -> None:
    with serving({"/metrics": text(CURRENT_PAGE)}, certificate) as peer:
        how = None if tls is None else tls_of(certificate, **tls)
        with running(ServerConfig(name="a", url=peer.url, tls=how)) as exporter:
            assert value(exporter, "kvscope_source_up", source="page") == up
            assert value(exporter, "kvscope_page_errors_total", kind="tls") == 1 - up


def test_a_server_may_want_a_certificate_of_ours(certificate: Certificate, tmp_path: Path) -> None:
    ours = make_certificate(tmp_path, "kvscope")
    answers = {"/metrics": text(CURRENT_PAGE)}
    with serving(answers, certificate, clients=ours.file) as peer:
        with_ours = tls_of(certificate, cert=str(ours.file), key=str(ours.key))
        for tls, up in ((with_ours, 1), (tls_of(certificate), 0)):
            with running(ServerConfig(name="a", url=peer.url, tls=tls)) as exporter:
                assert value(exporter, "kvscope_source_up", source="page") == up


def test_a_certificate_that_is_gone_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    tls = TlsConfig(ca=str(tmp_path / "gone"))
    config = ServerConfig(name="a", url="https://127.0.0.1:1", tls=tls)
    with pytest.raises(ConfigurationError, match="a: its TLS cannot be set up: No such file"):
        exporter_of(config, (), Clock())


def test_what_cannot_be_bound_leaves_nothing_behind(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        stream = KvEventsConfig(endpoint=endpoint, bind=True)
        wire = f"ipc://{tmp_path}/a.sock"
        config = ServerConfig(name="a", kind="vllm", events=(wire,), kv_events=(stream,))
        with pytest.raises(EndpointError):
            exporter_of(config, (), Clock())
