"""The page for gateways: the protocol exactly, one series a signal, nothing that is not known."""

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from kvscope_events.events import Batch, EngineEvent, PoolCreated, StepCompleted
from kvscope_exporter.paths import door_of
from kvscope_exporter.targets.compact import Pool, Signals, compact_page
from kvscope_exporter.targets.exporter import Exporter
from kvscope_exporter.targets.target import Target
from kvscope_exporter.web.compact import compact_router
from kvscope_exporter.web.metrics import bare_app
from kvscope_exporter.web.sidecar_app import sidecar_app
from tests.exporter.page import (
    FIXED_CLOCK,
    HELLO,
    batch_of,
    families,
    make_exporter,
    put,
    step,
)
from tests.exporter.scenario import STEPS, play

pytestmark = pytest.mark.anyio

NAMES = (
    "vllm:num_requests_waiting",
    "vllm:num_requests_running",
    "vllm:kv_cache_usage_perc",
    "vllm:cache_config_info",
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def played(**options: object) -> Exporter:
    exporter, subscription = make_exporter(**options)  # type: ignore[arg-type]
    play(subscription)
    for target in exporter.targets:
        target.pipeline.drain()  # what the fold thread does
    return exporter


def read(page: bytes) -> dict[str, tuple[dict[str, str], float]]:
    """Labels and value of each signal, of which there may be one series only."""
    found: dict[str, tuple[dict[str, str], float]] = {}
    for family in parse(page.decode()):
        assert family.type == "gauge"
        for sample in family.samples:
            assert sample.name not in found
            found[sample.name] = (sample.labels, sample.value)
    return found


def test_it_says_what_the_whole_page_says() -> None:
    exporter = played()
    compact = read(exporter.compact())
    assert tuple(compact) == NAMES
    whole = families(exporter)
    for name in NAMES[:3]:
        (sample,) = whole[name].samples
        assert compact[name] == ({}, sample.value)
    (facts,) = whole["vllm:cache_config_info"].samples
    labels, value = compact["vllm:cache_config_info"]
    assert value == 1
    assert labels == {"block_size": "4", "num_gpu_blocks": "10"}
    assert labels.items() <= facts.labels.items()


def test_it_does_not_depend_on_the_compatibility_sets() -> None:
    assert played(compat=()).compact() == played().compact()


def test_nothing_is_drained_for_it() -> None:
    exporter, subscription = make_exporter()
    assert exporter.compact() == b"", "no step has been folded yet"
    play(subscription)
    assert exporter.compact() == b""
    exporter.targets[0].pipeline.drain()
    assert exporter.compact() != b""


def test_a_state_that_is_not_known_is_absent() -> None:
    exporter, subscription = make_exporter()
    play(subscription)
    exporter.targets[0].pipeline.drain()
    heartbeat = STEPS[-1][-1]
    assert isinstance(heartbeat, StepCompleted)
    put(subscription, 9, 1, heartbeat)  # five batches are missing
    exporter.targets[0].pipeline.drain()
    assert exporter.compact() == b""


class Sessions:
    """A source that brings what the test puts, under the session that it names."""

    kind = "wire"
    endpoint = "ipc:///nowhere"
    up = state_known = True
    superseded = False

    def __init__(self) -> None:
        self.session = ""
        self._queue: list[tuple[str, Batch]] = []

    def put(self, session: str, *events: EngineEvent) -> None:
        self._queue.append((session, batch_of(*events)))

    def take(self) -> tuple[Batch, int] | None:
        if not self._queue:
            return None
        self.session, batch = self._queue.pop(0)
        return batch, 0


@pytest.mark.parametrize("is_only_heard_of", [False, True])
def test_a_new_session_says_nothing_of_the_one_before(is_only_heard_of: bool) -> None:
    source = Sessions()
    target = Target(source, compat=(), clock=FIXED_CLOCK)  # type: ignore[arg-type]
    exporter = Exporter([target], clock=FIXED_CLOCK)
    source.put("a", HELLO, PoolCreated(9, 4, 64), step(running=2, waiting=1))
    target.pipeline.drain()
    assert set(read(exporter.compact())) == set(NAMES)
    if is_only_heard_of:
        source.superseded = True
    else:
        source.put("b", step())  # before its Hello and its snapshot
    target.pipeline.drain()
    assert target.signals == Signals(("", ""))
    assert exporter.compact() == b""


A, B = ("demo", "0"), ("demo", "1")


def test_engines_of_one_server_are_added_up() -> None:
    page = compact_page(
        [
            Signals(A, 2, 5, Pool(active=30, usable=99, total=100, block_size=16)),
            Signals(B, 1, 0, Pool(active=0, usable=199, total=200, block_size=16)),
        ]
    )
    assert read(page) == {
        "vllm:num_requests_waiting": ({}, 3),
        "vllm:num_requests_running": ({}, 5),
        "vllm:kv_cache_usage_perc": ({}, 30 / 298),
        "vllm:cache_config_info": ({"block_size": "16", "num_gpu_blocks": "300"}, 1),
    }


def test_a_signal_that_one_engine_does_not_know_is_left_out() -> None:
    pool = Pool(active=30, usable=99, total=100, block_size=16)
    assert set(read(compact_page([Signals(A, 2, 5, pool), Signals(B, 1, 1)]))) == set(NAMES[:2])
    assert set(read(compact_page([Signals(A, 2, 5, pool), Signals(B, None, None, pool)]))) == set(
        NAMES[2:]
    )
    assert compact_page([Signals(A, 2, 5, pool), Signals(B)]) == b""


def test_different_block_sizes_have_no_common_configuration() -> None:
    one = Pool(active=30, usable=99, total=100, block_size=16)
    other = one._replace(block_size=32)
    page = compact_page([Signals(A, 0, 0, one), Signals(B, 0, 0, other)])
    assert set(read(page)) == set(NAMES[:3])


def test_a_second_engine_with_the_same_labels_does_not_count() -> None:
    assert compact_page([Signals(A, 2, 5), Signals(A, 1, 1)]) == compact_page([Signals(A, 2, 5)])


def test_a_server_without_engines_says_nothing() -> None:
    assert compact_page([]) == b""


async def test_it_is_served_as_text_on_the_event_loop() -> None:
    exporter = played()
    app = bare_app("test")
    app.include_router(compact_router(lambda _target: exporter))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://a") as http:
        answer = await http.get("/metrics/compact")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert answer.content == exporter.compact()
        head = await http.head("/metrics/compact")
        assert (head.status_code, head.content) == (200, b"")
        assert (await http.post("/metrics/compact")).status_code == 405


class Watched:
    """Servers of a sidecar."""

    def __init__(self, **servers: Exporter) -> None:
        self._servers = servers
        self.own = next(iter(servers.values()))

    def names(self) -> list[str]:
        return list(self._servers)

    def labels(self, name: str) -> dict[str, str]:
        return {}

    def server(self, name: str) -> Exporter | None:
        return self._servers.get(name)


async def test_a_sidecar_has_one_for_each_server() -> None:
    red, blue = played(), make_exporter()[0]
    several = httpx.ASGITransport(sidecar_app(Watched(red=red, blue=blue)))
    async with httpx.AsyncClient(transport=several, base_url="http://a") as http:
        answer = await http.get("/metrics/compact", params={"target": "red"})
        assert answer.content == red.compact()
        assert (await http.get("/metrics/compact?target=blue")).content == b""
        assert (await http.get("/metrics/compact?target=green")).status_code == 404
        missing = await http.get("/metrics/compact")
        assert missing.status_code == 400
        assert "red, blue" in missing.text
    alone = httpx.ASGITransport(sidecar_app(Watched(red=red)))
    async with httpx.AsyncClient(transport=alone, base_url="http://a") as http:
        assert (await http.get("/metrics/compact")).content == red.compact()


def test_its_door_is_that_of_pages() -> None:
    assert door_of("GET", "/metrics/compact") == "pages"
    assert door_of("POST", "/metrics/compact") == "control"
