"""The state of a watched server, as its page shows it, from real streams and pages."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kvscope_events.bus import EventBus
from kvscope_events.events import Hello
from kvscope_events.producers import (
    SGLANG_RANK_EVENTS,
    VLLM_EVENTS,
    VLLM_FRONT_END_EVENTS,
    VLLM_WORKER_EVENTS,
)
from kvscope_events.wire.publisher import WirePublisher
from kvscope_exporter.catalogue.server import SERVER_STATES
from kvscope_exporter.clock import Clock
from kvscope_exporter.configuration import KvEventsConfig, ServerConfig
from kvscope_exporter.sidecar.assembly import exporter_of
from kvscope_exporter.sidecar.sidecar import Sidecar
from kvscope_exporter.targets.exporter import Exporter
from tests.events.producers import SNAPSHOT
from tests.exporter.page import families, make_exporter, put, value
from tests.exporter.stream import hello
from tests.kv_events.publisher import Publisher
from tests.scrape.cases.vllm import CURRENT_PAGE
from tests.support.http_peer import serving, text
from tests.support.waiting import wait_for

SILENCE_NS = 6_000_000_000


class Engine:
    """A process that publishes; what it is may change."""

    def __init__(self, endpoint: str, **changes: object) -> None:
        self.endpoint = endpoint
        self._changes = {"server": "vllm", "tells": sorted(VLLM_EVENTS), **changes}
        self.bus = EventBus()
        self.bus.provide_snapshot(lambda: [self.hello(), SNAPSHOT])
        self._publisher = WirePublisher(self.bus, endpoint)
        self._publisher.start()
        self.say()

    def hello(self) -> Hello:
        return hello(**self._changes)

    def say(self, **changes: object) -> None:
        self._changes.update(changes)
        self.bus.emit(self.hello())
        if self._changes.get("worker") is None:
            self.bus.emit(SNAPSHOT)
        self.bus.flush()

    def end(self) -> None:
        """In an orderly way: the socket file goes with it."""
        self._publisher.stop()


class Scene:
    """A folder, engines in it, an exporter, and a clock that can be set forward."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ahead_ns = 0
        self.clock = Clock(monotonic_ns=lambda: time.monotonic_ns() + self.ahead_ns)
        self._stack = ExitStack()

    def engine(self, name: str = "engine-0", **changes: object) -> Engine:
        made = Engine(f"ipc://{self.folder}/{name}.sock", **changes)
        self._stack.callback(made.end)
        return made

    def worker(self, name: str = "engine-0-worker-0", rank: str = "0") -> Engine:
        return self.engine(name, worker=rank, ready=False, tells=sorted(VLLM_WORKER_EVENTS))

    def rank(self, number: int) -> Engine:
        """A process of an SGLang."""
        tells = sorted(SGLANG_RANK_EVENTS)
        changes = {"server": "sglang", "worker": str(number), "ready": False, "tells": tells}
        return self.engine(f"engine-0-worker-{number}", **changes)

    def watch(self, **config: object) -> Exporter:
        config = {"events": (f"ipc://{self.folder}/*",), **config}
        exporter = exporter_of(ServerConfig(name="s", **config), (), self.clock)  # type: ignore[arg-type]
        exporter.start()
        self._stack.callback(exporter.stop)
        return exporter

    def fall_silent(self) -> None:
        self.ahead_ns += SILENCE_NS

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    tmp_path.chmod(0o700)
    made = Scene(tmp_path)
    yield made
    made.close()


def state(exporter: Exporter) -> str | None:
    """Exactly one is 1, and all are there; None: none is there."""
    family = families(exporter).get("kvscope_server_state")
    if family is None:
        return None
    shown = {sample.labels["state"]: sample.value for sample in family.samples}
    assert tuple(shown) == SERVER_STATES
    assert sorted(shown.values()) == [0, 0, 0, 1], shown
    return next(name for name, number in shown.items() if number)


def comes_to(exporter: Exporter, wanted: str) -> None:
    wait_for(lambda: state(exporter) == wanted, f"the state is {wanted}")


def test_a_server_behind_an_empty_folder_is_expected(scene: Scene) -> None:
    assert state(scene.watch()) == "expected"


def test_a_server_of_which_only_workers_speak_loads(scene: Scene) -> None:
    exporter = scene.watch()
    scene.worker()
    comes_to(exporter, "loading")
    wait_for(lambda: value(exporter, "kvscope_engine_ready", model_name="demo", engine="0") == 0)
    engine = scene.engine(ready=False)
    wait_for(lambda: len(exporter.targets) == 2, "the engine is found")
    comes_to(exporter, "loading")
    engine.say(ready=True)
    comes_to(exporter, "ready")
    wait_for(lambda: value(exporter, "kvscope_engine_ready") == 1, "the engine's own figure")


def test_workers_of_an_engine_on_another_host_are_ready_once_each_has_started(scene: Scene) -> None:
    exporter = scene.watch()
    first, second = (scene.worker(f"engine-0-worker-{rank}", str(rank)) for rank in (2, 3))
    first.say(remote=True, ready=True)
    second.say(remote=True)
    wait_for(lambda: len(exporter.targets) == 2, "both are found")
    comes_to(exporter, "loading")
    second.say(ready=True)
    comes_to(exporter, "ready")
    wait_for(lambda: value(exporter, "kvscope_engine_ready") is None, "the engine is elsewhere")


def test_a_front_end_on_a_host_without_engines_is_ready(scene: Scene) -> None:
    """As with --data-parallel-size-local 0: all engines are on other hosts."""
    exporter = scene.watch()
    tells = sorted(VLLM_FRONT_END_EVENTS)
    front_end = scene.engine("api-0", worker="api-0", tells=tells, ready=True)
    comes_to(exporter, "loading")
    front_end.say(local_engines=0)
    comes_to(exporter, "ready")


def test_a_server_without_a_scheduler_here_is_ready_once_all_its_ranks_say_so(
    scene: Scene,
) -> None:
    """Its pool cannot be observed, or its scheduler is on another node."""
    exporter = scene.watch()
    ranks = [scene.rank(number) for number in range(2)]
    wait_for(lambda: value(exporter, "kvscope_engine_ready", model_name="demo", engine="0") == 0)
    ranks[0].say(ready=True)
    wait_for(lambda: len(exporter.targets) == 2, "both are found")
    comes_to(exporter, "loading")
    ranks[1].say(ready=True)
    comes_to(exporter, "ready")
    assert value(exporter, "kvscope_engine_ready", engine="0") == 1
    ranks[1].end()
    scene.fall_silent()
    wait_for(lambda: value(exporter, "kvscope_source_up", endpoint=ranks[0].endpoint) == 1)
    comes_to(exporter, "ready")
    ranks[0].end()
    scene.fall_silent()
    comes_to(exporter, "gone")


def test_a_scheduler_that_has_gone_is_not_replaced_by_its_ranks(scene: Scene) -> None:
    exporter = scene.watch()
    engine = scene.engine()
    scene.rank(0).say(ready=True)
    wait_for(lambda: len(exporter.targets) == 2, "both are found")
    comes_to(exporter, "ready")
    engine.end()
    scene.fall_silent()
    comes_to(exporter, "loading")
    wait_for(lambda: value(exporter, "kvscope_engine_ready") == 0)


def test_a_server_that_has_ended_stays_gone_on_the_page(scene: Scene) -> None:
    exporter = scene.watch()
    engine = scene.engine()
    comes_to(exporter, "ready")
    engine.end()
    for _ in range(20):  # two minutes
        scene.fall_silent()
    comes_to(exporter, "gone")
    time.sleep(1.5)  # several looks at the folder
    assert state(exporter) == "gone"
    assert value(exporter, "kvscope_source_up", model_name="demo", engine="0") == 0
    assert value(exporter, "kvscope_engine_ready") is None
    scene.engine()
    comes_to(exporter, "ready")
    assert len(exporter.targets) == 1


def test_a_server_is_ready_once_all_its_ranks_are(scene: Scene) -> None:
    exporter = scene.watch()
    first, second = (scene.engine(f"engine-{n}", engine=str(n), ready=False) for n in range(2))
    wait_for(lambda: value(exporter, "kvscope_engine_ready", engine="1") == 0, "both are known")
    first.say(ready=True)
    wait_for(lambda: value(exporter, "kvscope_engine_ready", engine="0") == 1)
    assert state(exporter) == "loading"
    second.say(ready=True)
    comes_to(exporter, "ready")
    second.end()
    scene.fall_silent()
    wait_for(lambda: value(exporter, "kvscope_source_up", engine="0") == 1, "one still speaks")
    comes_to(exporter, "loading")


def test_ranks_that_a_new_start_leaves_out_do_not_stay_gone(scene: Scene) -> None:
    exporter = scene.watch()
    ranks = [scene.engine(f"engine-{n}", engine=str(n)) for n in range(3)]
    wait_for(lambda: sum(target.hello is not None for target in exporter.targets) == 3)
    comes_to(exporter, "ready")
    for rank in ranks:
        rank.end()
    scene.fall_silent()
    comes_to(exporter, "gone")
    scene.engine("engine-0", engine="0")
    wait_for(lambda: len(exporter.targets) == 1, "the others are not waited for")
    comes_to(exporter, "ready")


def test_sockets_of_other_names_do_not_pile_up_with_every_start(scene: Scene) -> None:
    exporter = scene.watch()
    for start in range(3):
        engine = scene.engine(f"engine-{start}")
        comes_to(exporter, "ready")
        wait_for(lambda: len(exporter.targets) == 1, "the former one is dropped")
        engine.end()
        scene.fall_silent()
        comes_to(exporter, "gone")


def test_an_endpoint_that_is_configured_is_expected_then_ready_then_gone(scene: Scene) -> None:
    endpoint = f"ipc://{scene.folder}/one.sock"
    exporter = scene.watch(events=(endpoint,))
    assert state(exporter) == "expected"
    assert value(exporter, "kvscope_source_up") == 0
    engine = scene.engine("one")
    comes_to(exporter, "ready")
    engine.end()
    scene.fall_silent()
    comes_to(exporter, "gone")


def test_a_rank_that_is_configured_and_never_comes_keeps_its_server_loading(scene: Scene) -> None:
    endpoints = tuple(f"ipc://{scene.folder}/{name}.sock" for name in ("one", "two"))
    exporter = scene.watch(events=endpoints)
    scene.engine("one")
    comes_to(exporter, "loading")
    scene.engine("two", engine="1")
    comes_to(exporter, "ready")


def test_a_page_alone_tells_the_state(scene: Scene) -> None:
    with serving({}) as peer:
        exporter = scene.watch(events=(), url=peer.url)
        assert state(exporter) == "loading", "it answers without a page"
        peer.answers["/metrics"] = text(CURRENT_PAGE)
        scene.fall_silent()
        assert state(exporter) == "ready"
        peer.answers["/metrics"] = text("no upstream", status=502)
        scene.fall_silent()
        assert state(exporter) == "gone", "a proxy answers for it"
    scene.fall_silent()
    assert state(exporter) == "gone"


def test_a_page_that_nothing_answers_is_expected(scene: Scene) -> None:
    assert state(scene.watch(events=(), url="http://127.0.0.1:9")) == "expected"


def test_a_server_that_takes_requests_has_a_source_that_is_down_while_its_folder_is_silent(
    scene: Scene,
) -> None:
    """Its observer was not loaded, or its sockets are elsewhere, or those of another user."""
    folder = f"ipc://{scene.folder}/*"

    def is_up(exporter: Exporter) -> float | None:
        return value(exporter, "kvscope_source_up", endpoint=folder)

    with serving({}) as peer:
        exporter = scene.watch(url=peer.url)
        comes_to(exporter, "loading")
        assert is_up(exporter) is None, "its observer may still come"
        peer.answers["/metrics"] = text(CURRENT_PAGE)
        scene.fall_silent()
        wait_for(lambda: is_up(exporter) == 0)
        assert state(exporter) == "ready"
        scene.engine()
        wait_for(lambda: is_up(exporter) is None)
        comes_to(exporter, "ready")


def test_an_engine_whose_front_end_refuses_is_not_ready(scene: Scene) -> None:
    scene.engine()
    with serving({"/metrics": text(CURRENT_PAGE)}) as peer:
        exporter = scene.watch(url=peer.url)
        comes_to(exporter, "ready")
    scene.fall_silent()
    comes_to(exporter, "loading")


def test_a_stream_of_kv_events_alone_tells_whether_it_is_connected(scene: Scene) -> None:
    endpoint = f"ipc://{scene.folder}/kv.sock"
    streams = (KvEventsConfig(endpoint=endpoint),)
    exporter = scene.watch(events=(), kind="vllm", kv_events=streams)
    assert state(exporter) == "expected"
    publisher = Publisher(endpoint)
    comes_to(exporter, "ready")
    publisher.close()
    comes_to(exporter, "gone")


def test_our_engine_on_its_own_page_loads_and_is_ready() -> None:
    exporter, subscription = make_exporter()
    assert state(exporter) == "ready"
    put(subscription, 0, 0, hello(ready=False))
    assert state(exporter) == "loading"


def test_a_server_that_is_taken_out_of_the_configuration_has_no_state(scene: Scene) -> None:
    config = ServerConfig(name="s", events=(f"ipc://{scene.folder}/*",))
    sidecar = Sidecar([config])
    assert state(sidecar.own) == "expected"  # type: ignore[arg-type]
    sidecar.watch([], ())
    assert state(sidecar.own) is None  # type: ignore[arg-type]
    sidecar.stop()


def test_a_retired_server_shows_nothing_until_it_is_heard_again(scene: Scene) -> None:
    exporter = scene.watch()
    engine, worker = scene.engine(), scene.worker()
    wait_for(lambda: value(exporter, "kvscope_source_up", endpoint=worker.endpoint) == 1)
    comes_to(exporter, "ready")
    assert exporter.presence.retire() == ([], "ready"), "what speaks stays"
    engine.end()
    scene.fall_silent()
    wait_for(lambda: value(exporter, "kvscope_source_up", endpoint=worker.endpoint) == 1)
    assert exporter.presence.retire() == ([engine.endpoint], "loading")
    worker.end()
    scene.fall_silent()
    comes_to(exporter, "gone")
    assert exporter.presence.retire() == ([worker.endpoint], None)
    assert "model_name" not in exporter.render()[0].decode()
    assert state(exporter) is None
    assert exporter.presence.retire() == ([], None)
    scene.engine(ready=False)
    comes_to(exporter, "loading")
    wait_for(lambda: value(exporter, "kvscope_engine_ready") == 0)


def test_a_server_that_never_came_can_be_retired(scene: Scene) -> None:
    for config in ({}, {"events": (f"ipc://{scene.folder}/never.sock",)}):
        exporter = scene.watch(**config)
        assert state(exporter) == "expected"
        assert exporter.presence.retire()[1] is None
        assert state(exporter) is None
        assert value(exporter, "kvscope_source_up") is None


def test_a_retired_page_comes_back_when_it_is_answered_again(scene: Scene) -> None:
    with serving({"/metrics": text(CURRENT_PAGE)}) as peer:
        exporter = scene.watch(events=(), url=peer.url)
        assert state(exporter) == "ready"
        assert exporter.presence.retire() == ([], "ready")
        peer.answers["/metrics"] = text("no upstream", status=502)
        scene.fall_silent()
        assert exporter.presence.retire() == ([f"{peer.url}/metrics"], None)
        assert state(exporter) is None
        assert value(exporter, "kvscope_source_up") is None
        peer.answers["/metrics"] = text(CURRENT_PAGE)
        scene.fall_silent()
        assert state(exporter) == "ready"
        assert value(exporter, "kvscope_source_up") == 1
        peer.answers["/metrics"] = text("no upstream", status=502)
        scene.fall_silent()
        assert state(exporter) == "gone"
