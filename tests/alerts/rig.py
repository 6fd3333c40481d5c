"""Engines whose faults a test switches on and off, and the simulated NVIDIA driver beside them."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pynvml
import pytest

from kvscope_engine.config import CacheConfig, ModelConfig
from kvscope_engine.out_of_memory import DeviceOutOfMemoryError
from kvscope_engine.step_plan import SampledToken, StepPlan
from kvscope_events.bus import EventBus
from kvscope_events.events import DeviceMemorySampled, PrefixLookup
from kvscope_exporter.machine.gpu import Cadence, GpuPoller, xids
from kvscope_exporter.machine.host_memory import HostMemory, host_memory
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.targets.exporter import in_process
from kvscope_exporter.web.http_server import HttpServer
from kvscope_exporter.web.metrics import metrics_app
from tests.fakes.nvml import Simulated, build_library, h200, machine
from tests.gpu.scrapes import SERVER_PID, torch_sample
from tests.support import server as server_module
from tests.support.server import Reins, Server, greedy, make_engine_config, serving

CADENCE = Cadence(
    memory=0.2, processes=0.4, sensors=0.4, first_retry=0.1, last_retry=0.4, stale_intervals=10
)


class Rig(Reins):
    """Reins with faults of the device."""

    def __init__(self, runner: Any) -> None:
        super().__init__(runner)
        self.step_seconds = 0.0
        """Added to every step: a slow device."""
        self.out_of_memory = 0
        """This many of the next steps run out of device memory."""
        self.torch: dict[str, object] | None = None
        """torch's figures of a GPU, except for the defaults; None: no GPU."""

    def execute(self, plan: StepPlan) -> list[SampledToken | None]:
        time.sleep(self.step_seconds)
        if self.out_of_memory:
            self.out_of_memory -= 1
            raise DeviceOutOfMemoryError(2**30)
        return super().execute(plan)

    def drop_caches(self) -> None:
        """Do nothing: there are no caches."""

    def sample_memory(self) -> DeviceMemorySampled:
        runner: Any = self._runner
        sampled: DeviceMemorySampled = runner.sample_memory()
        return sampled if self.torch is None else torch_sample(**self.torch)


class Target:
    """A server and the page that Prometheus scrapes, on a port that stays when it is replaced."""

    def __init__(self, server: Server, machine: Machine | None = None, queue: int = 4096) -> None:
        self.server = server
        self._machine = machine
        self._queue = queue
        self._port = 0
        self._page: HttpServer | None = None
        self.restart()

    @property
    def bus(self) -> EventBus:
        loop: Any = self.server.engine.loop
        bus: EventBus = loop._bus
        return bus

    @property
    def rig(self) -> Rig:
        assert isinstance(self.server.reins, Rig)
        return self.server.reins

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def restart(self) -> None:
        """A new exporter, as after a restart of the process."""
        self.stop()
        self._subscription = self.bus.subscribe(self._queue)
        self._exporter = in_process(self._subscription, compat=(), machine=self._machine)
        self._exporter.start()
        self._page = HttpServer(metrics_app(self._exporter), "127.0.0.1", self._port)
        self._port = self._page.port

    def resynchronise(self) -> None:
        """The pool's state as a whole, as after a gap."""
        self._subscription.request_snapshot()

    def stop(self) -> None:
        """Nothing answers, until a restart."""
        if self._page is None:
            return
        self._page.stop()
        self._page = None
        self._exporter.stop()


@contextmanager
def engine(
    monkeypatch: pytest.MonkeyPatch, name: str, blocks: int = 128, sequences: int = 16
) -> Iterator[Server]:
    """A server of the demo model by that name, on a rig."""
    monkeypatch.setattr(server_module, "Reins", Rig)
    config = make_engine_config(
        model=ModelConfig(device="cpu", served_model_name=name),
        cache=CacheConfig(num_gpu_blocks_override=blocks),
        max_num_seqs=sequences,
    )
    with serving(config) as server:
        yield server


@contextmanager
def clients(
    server: Server, number: int, body: Callable[[int], dict[str, Any]], pause: float = 0.0
) -> Iterator[None]:
    """This many clients at a time keep asking, whatever the answer; body: that of the nth
    request."""
    stop = threading.Event()
    counter = iter(range(10**9))

    def ask() -> None:
        with httpx.Client(base_url=server.url, timeout=120) as client:
            while not stop.wait(pause):
                prepared = body(next(counter))
                try:
                    client.post("/v1/completions", json=prepared)
                except httpx.TransportError:
                    return

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(number)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)


@contextmanager
def lies(bus: EventBus) -> Iterator[None]:
    """Lookups that claim hits of prompts that were never computed, again and again."""
    stop = threading.Event()
    sequences = iter(range(10**6, 10**9))

    def lie() -> None:
        while not stop.wait(0.5):
            names = [os.urandom(16) for _ in range(100)]
            bus.emit(PrefixLookup(next(sequences), 16 * len(names) + 1, names, len(names)))

    thread = threading.Thread(target=lie, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def prompt(number: int, tokens: int, **body: Any) -> dict[str, Any]:
    """A request for a text that no other number begins with."""
    text = f"{number:08d}" * (tokens // 8 + 1)
    return greedy(text[:tokens], return_token_ids=False, **body)


@contextmanager
def nvidia_driver(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulated]:
    """Two H200, in this process; the other double stays as it was."""
    library = build_library(folder)
    monkeypatch.setenv("FAKE_NVML_STATE", str(folder / "nvml.state"))
    monkeypatch.setattr(xids, "WAIT_MILLISECONDS", 20)
    monkeypatch.setattr(pynvml, "nvmlLib", pynvml.CDLL(str(library)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    hardware = Simulated(folder / "nvml.state")
    hardware.become(machine(h200(), h200("", 0)))
    yield hardware


class Host:
    """A control group of the machine, as files."""

    LIMIT = 100 * 2**30

    def __init__(self, root: Path) -> None:
        self._root = root
        self.broken = False
        """Reading it raises, as no machine should."""
        for pid in (SERVER_PID, os.getpid()):  # the engines say that they are in this process
            (root / "proc" / str(pid)).mkdir(parents=True)
            (root / "proc" / str(pid) / "cgroup").write_text("0::/kvscope\n")
        self._group = root / "sys" / "fs" / "cgroup" / "kvscope"
        self._group.mkdir(parents=True)
        (self._group.parent / "cgroup.controllers").write_text("memory\n")
        (self._group / "memory.max").write_text(f"{self.LIMIT}\n")
        self.use(0.5)

    def use(self, share: float) -> None:
        """Use a share of the limit, plus a tenth of it as file cache."""
        cache = self.LIMIT // 20
        self._show("memory.stat", f"inactive_file {cache // 2}\nactive_file {cache - cache // 2}\n")
        self._show("memory.current", f"{round(share * self.LIMIT) + cache}\n")

    def _show(self, name: str, content: str) -> None:
        """A kernel's file is never half written; one of ours is not if another takes its place."""
        new = self._group.with_name("new")
        new.write_text(content)
        new.replace(self._group / name)

    def read(self, pid: int) -> HostMemory:
        if self.broken:
            raise RuntimeError("planted by the test")
        return host_memory(pid, self._root)


@contextmanager
def gpu_machine(
    folder: Path, hardware: Simulated, stack: ExitStack
) -> Iterator[tuple[Machine, Host]]:
    """Those GPUs and a host, read as in earnest."""
    poller = GpuPoller(CADENCE)
    poller.start()
    host = Host(folder)
    try:
        yield Machine(gpu=poller, host=host.read), host
    finally:
        poller.stop(timeout=10)
