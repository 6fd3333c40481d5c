"""Harm: vLLM, the sidecar and both killed or stopped under load. vLLM serves, numbers come back."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from kvscope.run.plugin_folder import write_plugin_folder
from tests.support.pages import sample
from tests.support.process import Process, kvscope
from tests.support.waiting import wait_for
from tests.vllm.live_replay import Replay
from tests.vllm.observed import SMALL, WITNESS
from tests.vllm.server import (
    VllmServer,
    free_port,
    plugin_folder,
    server_command,
    server_environment,
    started,
    witness_lines,
)

pytestmark = [pytest.mark.vllm, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(900)]

STOPPED_SECONDS = float(os.environ.get("STOPPED_SECONDS", "10"))
"""Time for which the sidecar is stopped; longer than the silence after which a server counts as
down."""


@dataclass
class Attached:
    """A vLLM started by hand with the observer on its path, and a sidecar on the folder of sockets.

    Each is restarted after it has been killed.
    """

    python: Path
    model: Path
    folder: Path
    port: int = field(default_factory=free_port)
    servers: ExitStack = field(default_factory=ExitStack)
    sidecars: ExitStack = field(default_factory=ExitStack)
    starts: int = 0
    server: VllmServer | None = None
    process: Process | None = None
    url: str = ""

    @property
    def endpoint(self) -> str:
        return f"ipc://{self.folder}/s/*"

    def start_server(self) -> VllmServer:
        self.servers.close()
        self.starts += 1
        witness = self.folder / f"witness-{self.starts}"
        witness.mkdir()
        environment = server_environment(
            PYTHONPATH=f"{self.folder / 'observer'}{os.pathsep}{self.folder / 'plugin'}",
            KVSCOPE_OBSERVER_DIR=str(self.folder / "s"),
            KVSCOPE_WITNESS=str(witness),
        )
        command = server_command(self.python, self.model, self.port, *SMALL)
        name = f"vllm-{self.starts}"
        self.server = self.servers.enter_context(
            started(command, environment, self.port, self.folder, name)
        )
        return self.server

    def start_sidecar(self) -> None:
        self.sidecars.close()
        self.process = self.sidecars.enter_context(
            kvscope("sidecar", "--port", "0", "--no-gpu", "--events", f"vllm={self.endpoint}")
        )
        self.url = self.process.find(r"(http://[\d.]+:\d+)")
        wait_for(lambda: self.value("kvscope_build_info", strict=False) is not None, "it answers")

    def value(self, name: str, *, strict: bool = True, **labels: str) -> float | None:
        """A value of the scheduler's stream; workers have streams of their own."""
        try:
            page = httpx.get(f"{self.url}/metrics", timeout=30).text
        except httpx.TransportError:
            if strict:
                raise
            return None
        if "source" in name:
            labels["endpoint"] = self.endpoint.replace("*", "engine-0.sock")
        return sample(page, name, **labels)

    def known(self) -> bool:
        return self.value("kvscope_source_state_known") == 1

    def assert_equal(self) -> None:
        """The page says of the pool what vLLM's witness wrote last, once all is quiet."""
        assert self.server is not None
        self.server.wait_idle()
        wait_for(self.known, "the state is known")
        wait_for(self._agrees, "page and pool agree")
        assert self.value("kvscope_kv_ledger_imbalance_blocks") == 0

    def _agrees(self) -> bool:
        last = witness_lines(self.folder / f"witness-{self.starts}")[0][-1]
        states = ("active", "cached", "free")
        shown = [self.value("kvscope_kv_blocks", state=state) for state in states]
        return shown == [last[state] for state in states]


class Clients:
    """Requests one after the other from several clients, until they are stopped."""

    def __init__(self, attached: Attached) -> None:
        self._attached = attached
        self._ending = threading.Event()
        self.served = 0
        self.failed: list[str] = []
        self._threads = [threading.Thread(target=self._work, args=(n,)) for n in range(8)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _work(self, number: int) -> None:
        turn = 0
        while not self._ending.is_set():
            turn += 1
            prompt = f"{'common ' * 20}{turn % 5} {'own ' * (number * 9 + turn % 7)}"
            server = self._attached.server
            assert server is not None
            try:
                server.complete(prompt, 100)
                self.served += 1
            except (httpx.TransportError, AssertionError) as error:
                self.failed.append(repr(error)[:200])
                time.sleep(0.2)


@contextmanager
def under_load(attached: Attached) -> Iterator[Clients]:
    clients = Clients(attached)
    try:
        wait_for(lambda: clients.served > 8, "requests are served", 60)
        yield clients
    finally:
        clients.close()


@pytest.fixture(scope="module")
def attached(
    vllm_python: Path, models: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Attached]:
    folder = tmp_path_factory.mktemp("attached")
    (folder / "s").mkdir(mode=0o700)
    write_plugin_folder(folder / "observer")
    plugin_folder(folder / "plugin", "kvscope_witness", WITNESS)
    both = Attached(vllm_python, models("llama"), folder)
    with both.servers, both.sidecars:
        both.start_server()
        both.start_sidecar()
        try:
            yield both
        finally:
            both.servers.close()
            both.sidecars.close()


def test_a_killed_sidecar_costs_vllm_nothing_and_the_next_one_knows(attached: Attached) -> None:
    with under_load(attached) as clients:
        assert attached.process is not None
        attached.process.send(signal.SIGKILL)
        attached.process.wait()
        before = clients.served
        wait_for(lambda: clients.served > before + 16, "vLLM serves without it", 60)
        attached.start_sidecar()
        wait_for(attached.known, "the new one knows the state")
    assert clients.failed == []
    attached.assert_equal()


def test_a_stopped_sidecar_costs_vllm_nothing_and_catches_up(attached: Attached) -> None:
    assert attached.process is not None
    beside = Replay(attached.endpoint.replace("*", "engine-0.sock"))
    try:
        with under_load(attached) as clients:
            attached.process.send(signal.SIGSTOP)
            before = clients.served
            time.sleep(STOPPED_SECONDS)
            assert clients.served > before + 8
            attached.process.send(signal.SIGCONT)
            wait_for(attached.known, "known again")
        assert clients.failed == []
        attached.assert_equal()
        assert not beside.contradictions
        assert beside.stopped is None
    finally:
        beside.close()


@pytest.mark.weekly
def test_a_killed_vllm_is_unknown_and_its_successor_known(attached: Attached) -> None:
    with under_load(attached) as clients:
        assert attached.server is not None
        _kill(attached.server)
        wait_for(lambda: attached.value("kvscope_source_up") == 0, "it is missed", 15)
        assert attached.value("kvscope_source_state_known") == 0
        assert attached.value("kvscope_kv_blocks", state="active") is None
        attached.start_server()
        wait_for(attached.known, "its successor is known")
        before = clients.served
        wait_for(lambda: clients.served > before + 16, "it serves", 60)
    attached.assert_equal()


@pytest.mark.weekly
def test_both_killed_and_both_back(attached: Attached) -> None:
    with under_load(attached) as clients:
        assert attached.server is not None
        assert attached.process is not None
        attached.process.send(signal.SIGKILL)
        attached.process.wait()
        _kill(attached.server)
        attached.start_sidecar()
        time.sleep(1)
        assert attached.value("kvscope_kv_blocks", state="active") is None
        attached.start_server()
        wait_for(attached.known, "known")
        before = clients.served
        wait_for(lambda: clients.served > before + 16, "it serves", 60)
    attached.assert_equal()


def _kill(server: VllmServer) -> None:
    """All of it at once, so that none of its processes can tidy up."""
    for pid in server.members():
        os.kill(pid, signal.SIGKILL)
    server.wait()
