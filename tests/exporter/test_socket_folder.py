"""A folder of sockets as an endpoint: targets that appear and disappear, and other files."""

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvscope_events.wire.endpoint import EndpointError
from kvscope_events.wire.publisher import WirePublisher
from kvscope_events.wire.subscriber import WireSubscriber
from kvscope_exporter.clock import Clock
from kvscope_exporter.configuration import ServerConfig
from kvscope_exporter.sidecar import socket_folder as module
from kvscope_exporter.sidecar.sidecar import Sidecar
from kvscope_exporter.sidecar.socket_folder import FORGET_NS, SocketFolder
from kvscope_exporter.targets.exporter import Exporter
from kvscope_exporter.targets.target import Target
from tests.events.producers import Producer
from tests.exporter.page import value
from tests.support.waiting import wait_for


class Watch:
    """A folder with a clock that the test sets."""

    def __init__(self, directory: Path) -> None:
        self.now_ns = 0
        clock = Clock(monotonic_ns=lambda: self.now_ns, wall_ns=lambda: 0)
        self.exporter = Exporter([], clock=clock)
        self.exporter.start()
        self.folder = SocketFolder(
            f"ipc://{directory}/*",
            self.exporter,
            lambda endpoint: Target(
                WireSubscriber(endpoint, clock_ns=clock.monotonic_ns), compat={"vllm"}, clock=clock
            ),
            clock,
        )

    @property
    def endpoints(self) -> list[str]:
        return [Path(target.source.endpoint).name for target in self.exporter.targets]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    tmp_path.chmod(0o700)
    made = Watch(tmp_path)
    yield made
    made.folder.stop()
    made.exporter.stop()


def publisher_at(path: Path) -> tuple[WirePublisher, Producer]:
    producer = Producer(path.stem)
    publisher = WirePublisher(producer.bus, f"ipc://{path}")
    publisher.start()
    return publisher, producer


def test_sockets_that_appear_become_targets_and_are_read(watch: Watch, tmp_path: Path) -> None:
    watch.folder.scan()
    assert watch.endpoints == []
    for name in ("engine-1", "engine-0"):
        publisher, producer = publisher_at(tmp_path / f"{name}.sock")
        producer.begin()
        watch.folder.scan()
        watch.folder.scan()
        wait_for(lambda name=name: value(watch.exporter, "kvscope_source_up", model_name=name) == 1)
        assert value(watch.exporter, "kvscope_collect_errors_total") == 0
        publisher.stop()
    assert watch.endpoints == ["engine-1.sock", "engine-0.sock"]


def test_an_engine_without_a_file_stays_however_long_it_is_silent(
    watch: Watch, tmp_path: Path
) -> None:
    publisher, producer = publisher_at(tmp_path / "engine-0.sock")
    producer.begin()
    watch.folder.scan()
    wait_for(lambda: value(watch.exporter, "kvscope_source_up", model_name="engine-0") == 1)
    publisher.stop()
    assert not (tmp_path / "engine-0.sock").exists()
    for _ in range(3):
        watch.now_ns += 100 * FORGET_NS
        watch.folder.scan()
    assert value(watch.exporter, "kvscope_source_up", model_name="engine-0") == 0


def test_what_never_introduced_itself_is_dropped_after_a_minute_without_a_file(
    watch: Watch, tmp_path: Path
) -> None:
    path = tmp_path / "engine-0.sock"
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(path))
        mute.listen()
        watch.folder.scan()
        watch.now_ns += 2 * FORGET_NS
        watch.folder.scan()
        assert watch.endpoints == ["engine-0.sock"], "its file is there"
    path.unlink()
    watch.now_ns += FORGET_NS
    watch.folder.scan()
    assert watch.endpoints == ["engine-0.sock"]
    watch.now_ns += 1
    watch.folder.scan()
    assert watch.endpoints == []


def test_a_full_folder_drops_the_engine_that_is_gone_longest(
    watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_TARGETS", 2)
    for name in ("first", "second", "third"):  # models of their own, so that none replaces another
        publisher, producer = publisher_at(tmp_path / f"{name}.sock")
        producer.begin()
        watch.folder.scan()
        wait_for(lambda name=name: value(watch.exporter, "kvscope_source_up", model_name=name) == 1)
        watch.folder.scan()
        publisher.stop()
        watch.now_ns += FORGET_NS
    assert watch.endpoints == ["second.sock", "third.sock"]


def test_what_a_dead_server_left_behind_is_no_target(watch: Watch, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "engine-0.sock"))
    (tmp_path / "engine-1.sock").write_text("a file")
    (tmp_path / "engine-2.sock").symlink_to(tmp_path / "engine-0.sock")
    (tmp_path / "engine-3.sock.lock").write_text("")
    watch.folder.scan()
    assert watch.endpoints == []


def test_the_number_of_targets_is_bounded(
    watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MAX_TARGETS", 2)
    listeners = []
    for number in range(4):
        listeners.append(socket.socket(socket.AF_UNIX))
        listeners[-1].bind(str(tmp_path / f"engine-{number}.sock"))
        listeners[-1].listen()
    with caplog.at_level(logging.WARNING):
        watch.folder.scan()
        watch.folder.scan()
    for listener in listeners:
        listener.close()
    assert len(watch.endpoints) == 2
    assert caplog.text.count("more than 2 sockets") == 1


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(EndpointError, match="others may write"):
        Watch(tmp_path)


def test_a_folder_may_come_later_and_go_again(watch: Watch, tmp_path: Path) -> None:
    later = Watch(tmp_path / "later")
    later.folder.scan()
    publisher, _ = publisher_at(tmp_path / "later" / "engine-0.sock")
    later.folder.scan()
    assert later.endpoints == ["engine-0.sock"]
    publisher.stop()
    later.exporter.stop()


def test_a_sidecar_watches_a_folder_beside_an_endpoint(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    ours = tmp_path / "vllm"
    sidecar = Sidecar(
        [ServerConfig(name="all", events=(f"ipc://{ours}/*", f"ipc://{tmp_path}/other.sock"))]
    )
    sidecar.start()
    assert sidecar.own.watching
    publisher, producer = publisher_at(ours / "engine-0.sock")
    producer.begin()
    wait_for(lambda: value(sidecar.own, "kvscope_source_up", model_name="engine-0") == 1)  # type: ignore[arg-type]
    publisher.stop()
    sidecar.stop()
    assert not sidecar.own.watching
