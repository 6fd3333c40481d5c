"""Every alert, from a real fault to the webhook and back: one run, faults side by side.

Prometheus evaluates the shipped rules with durations divided by 60; Alertmanager has the shipped
example without inhibition, which another test covers.
"""

import itertools
import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kvscope.backtest.evaluation import Firing
from kvscope.backtest.inhibition import SHIPPED, held_back, inhibition_rules
from kvscope_events.events import BlocksAllocated, BlocksReleased, ObserverStopped
from tests.alerts.provoked import AFTERWARDS, AT_LAST, EARLY, NAMES, SIDE_BY_SIDE, STANDING, key
from tests.alerts.rig import (
    Host,
    Target,
    clients,
    engine,
    gpu_machine,
    lies,
    nvidia_driver,
    prompt,
)
from tests.alerts.stack import Notice, Stack, free_port, stack
from tests.alerts.tools import WATCHDOG
from tests.fakes.nvml import GIB, MIB, Simulated, compiler
from tests.support.process import forked_kvscope
from tests.support.server import greedy
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.waits,
    pytest.mark.prometheus,
    pytest.mark.alertmanager,
    pytest.mark.slow,
    pytest.mark.timeout(400),
]

PATIENCE = 70.0
CALM_SECONDS = 25
"""Repeated prompts before they change: the baseline of the prefix cache's ratio."""
HOLES = re.compile(r"<no value>|<error|\{\{|\}\}|\bNaN\b|\bInf\b|  |\(\)|%!")
LOG = "parts.log"
RECEIVERS = {"critical": "on-call", "warning": "team"}

SICK = {
    "gpu.0.memory.used": 143_000 * MIB,
    "gpu.0.processes": f"4242:31138512896,77:{110 * GIB}",
    "gpu.0.ecc.uncorrected": 2,
    "gpu.0.remapped.pending": 1,
    "gpu.0.remapped.failed": 1,
    "gpu.0.clocks_event_reasons": "0x40",
    "gpu.0.field.230": 1,
    "gpu.1.error": 15,
}
WELL = {
    "gpu.0.memory.used": 31157387264,
    "gpu.0.processes": "4242:31138512896",
    "gpu.0.ecc.uncorrected": 0,
    "gpu.0.remapped.pending": 0,
    "gpu.0.remapped.failed": 0,
    "gpu.0.clocks_event_reasons": "0x4",
    "gpu.0.field.230": 0,
    "gpu.1.error": None,
}


def fired(run: Stack, names: set[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while missing := names - run.hook.seen("firing"):
        assert time.monotonic() < deadline, f"not fired in {PATIENCE:g} s: {sorted(missing)}"
        time.sleep(0.1)


def resolved(run: Stack, names: set[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while firing := {name for name in names if run.hook.now().get(name) != "resolved"}:
        assert time.monotonic() < deadline, f"not resolved in {PATIENCE:g} s: {sorted(firing)}"
        time.sleep(0.1)


class Scene:
    """The servers of the run. Four are replicas of one model, and two of these are well."""

    def __init__(self, parts: ExitStack, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hardware: Simulated = parts.enter_context(nvidia_driver(folder, monkeypatch))
        machine, self.host = parts.enter_context(gpu_machine(folder, self.hardware, parts))
        pressed = parts.enter_context(engine(monkeypatch, "crowd", blocks=64, sequences=24))
        doomed = parts.enter_context(engine(monkeypatch, "crowd"))
        healthy = [parts.enter_context(engine(monkeypatch, "crowd")) for _ in range(2)]
        sick = parts.enter_context(engine(monkeypatch, "sick"))
        slow = parts.enter_context(engine(monkeypatch, "slow"))
        sick.reins.torch = {}  # type: ignore[attr-defined]
        self.pressed, self.doomed = Target(pressed), Target(doomed)
        self.healthy = [Target(server) for server in healthy]
        self.sick, self.slow_exporter = Target(sick, machine), Target(sick, queue=1)
        self.slow = Target(slow)
        self.targets = (
            *(self.pressed, self.doomed, *self.healthy),
            *(self.sick, self.slow_exporter, self.slow),
        )
        for target in self.targets:
            parts.callback(target.stop)
        self.variety = itertools.count()
        self.repeats = True

    def question(self, number: int) -> dict[str, Any]:
        """To the sick server: the same long prompt, or others, in turn, for which there is no room.

        Its pool keeps about twenty of the thirty; one of twice the size would keep all of them.
        """
        other = 1 + next(self.variety) % 30
        return prompt(0 if self.repeats else other, 96, max_tokens=8)


class Flaky:
    """A command on a port of its own, to be killed and started again."""

    def __init__(self, parts: ExitStack, *command: str) -> None:
        self._port = free_port()
        self.address = f"127.0.0.1:{self._port}"
        self._command = (*command, "--port", str(self._port))
        self._life = parts.enter_context(ExitStack())
        self.start()

    def start(self) -> None:
        self._life.enter_context(forked_kvscope(*self._command))

    def kill(self) -> None:
        self._life.close()


@pytest.fixture(scope="module")
def notices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Notice]]:
    """All notifications of the whole run."""
    if compiler() is None and os.environ.get("CI") != "true":
        pytest.skip("no C compiler on PATH")
    folder = tmp_path_factory.mktemp("provoked")
    port = free_port()
    wire = f"ipc://{folder}/events.sock"
    watched = ("--num-gpu-blocks-override", "64", "--no-gpu", "--event-endpoint", wire)
    serve = ("engine", "serve", "--port", str(port), *watched)
    sidecar = free_port()
    with ExitStack() as parts:
        parts.enter_context(logged_to(folder / LOG))
        monkeypatch = parts.enter_context(pytest.MonkeyPatch.context())
        killed = parts.enter_context(forked_kvscope(*serve, "--max-model-len", "512"))
        scene = Scene(parts, folder, monkeypatch)
        killed.find(r"serving \S+ at (\S+)/v1")
        watching = ("sidecar", "--events", f"watched={wire}", "--no-gpu")
        parts.enter_context(forked_kvscope(*watching, "--port", str(sidecar)))
        flaky = Flaky(parts, *watching)
        nothing = free_port()
        absent = ("sidecar", "--events", f"absent=ipc://{folder}/absent.sock", "--no-gpu")
        parts.enter_context(forked_kvscope(*absent, "--port", str(nothing)))
        addresses = [target.address for target in scene.targets]
        addresses += [f"127.0.0.1:{port}", f"127.0.0.1:{sidecar}", flaky.address]
        silent = (f"127.0.0.1:{free_port()}", f"127.0.0.1:{nothing}")
        run = parts.enter_context(stack(folder, *addresses, *silent))
        wait_for(lambda: len(run.ask("up == 1")) == len(addresses) + 1, "all are scraped", PATIENCE)
        wait_for(
            lambda: len(run.ask("kvscope_source_up == 1")) == len(addresses), "all speak", PATIENCE
        )

        for target in scene.healthy:
            parts.enter_context(
                clients(target.server, 1, lambda n: greedy("well", max_tokens=8), pause=1.0)
            )
        many_at_once(run, scene, killed, flaky)
        run.scrape(*addresses)  # without those that never were there
        parts.enter_context(forked_kvscope(*serve, "--max-model-len", "512"))  # it comes back
        resolved(run, SIDE_BY_SIDE - STANDING)
        early = run.hook.seen("firing") - SIDE_BY_SIDE
        assert early <= EARLY, f"nobody provoked them yet; {failed_parts(folder)}"

        some_later(run, scene)
        resolved(run, AFTERWARDS)

        fallen = (scene.pressed, *scene.healthy)
        for target in fallen:
            target.stop()
        fired(run, {"KvscopeManyTargetsDown namespace"})
        run.scrape()
        absent = "KvscopeTargetAbsent"
        wait_for(lambda: run.hook.now().get(absent) == "firing", absent, PATIENCE)
        resolved(run, STANDING)
        for target in fallen:
            target.restart()
        run.scrape(*addresses)
        resolved(run, AT_LAST)
        yield run.hook.notices


@contextmanager
def logged_to(file: Path) -> Iterator[None]:
    """Keep the log of the exporters of this process about parts of their pages."""
    handler = logging.FileHandler(file)
    logger = logging.getLogger("kvscope_exporter.collect.parts")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


def failed_parts(folder: Path) -> str:
    return (folder / LOG).read_text() or "no part of a page failed in this process"


def many_at_once(run: Stack, scene: Scene, killed: Any, flaky: Flaky) -> None:
    """A process that ends and is started again; then pressure on a small pool, a stall, a kill, a
    sick GPU, a full host, a change of prompts and slow steps, all together."""
    pressed, sick, doomed, slow = scene.pressed, scene.sick, scene.doomed, scene.slow
    with clients(sick.server, 4, scene.question, pause=0.2):
        ends_and_starts(run, flaky)  # before the pressure, which would slow its starts down
        calm = f"count_over_time(up[1m]) >= {CALM_SECONDS}"
        wait_for(lambda: len(run.ask(calm)) >= len(scene.targets), "some calm", PATIENCE)
        pressed.rig.step_seconds, doomed.rig.step_seconds = 0.06, 0.05
        slow.rig.step_seconds = 0.6
        with (
            clients(pressed.server, 48, lambda n: prompt(n, 30 + n % 16, max_tokens=40)),
            clients(doomed.server, 32, lambda n: greedy("hangs", max_tokens=40)),
            clients(slow.server, 16, lambda n: greedy("slowly", max_tokens=40)),
        ):
            wait_for(
                lambda: doomed.server.metric("kvscope_requests", state="waiting") > 8, "a queue"
            )
            doomed.rig._go.clear()
            scene.repeats = False
            killed.popen.kill()
            scene.hardware.change(SICK)
            scene.hardware.raise_xid(0, 79, 31, 13)
            scene.host.use(0.98)
            sick.rig.torch = {"alloc_retries": 3}
            sick.rig.out_of_memory = 40
            fired(run, SIDE_BY_SIDE)
            pressed.rig.step_seconds = doomed.rig.step_seconds = slow.rig.step_seconds = 0.0
            doomed.rig._go.set()
    scene.hardware.change(WELL)
    scene.host.use(0.5)


def ends_and_starts(run: Stack, flaky: Flaky) -> None:
    """As often as it takes: three starts have to be scraped within twenty seconds."""
    started = f'process_start_time_seconds{{instance="{flaky.address}"}}'
    deadline = time.monotonic() + PATIENCE
    before: set[str] = set()
    while "KvscopeEngineDown restarts" not in run.hook.seen("firing"):
        assert time.monotonic() < deadline, "no restart loop"
        if now := {sample["value"][1] for sample in run.ask(started)} - before:
            before |= now
            flaky.kill()
            flaky.start()
        time.sleep(0.1)


def some_later(run: Stack, scene: Scene) -> None:
    """A GPU gone, then NVML, a double free, an event that no fold understands, an engine that dies,
    an observer that gives up, a host that cannot be read, lookups that are not true."""
    scene.hardware.change({"count": 1})
    scene.sick.bus.emit(BlocksReleased(10**6, [], [5], [], "finished"))
    scene.doomed.bus.emit(BlocksAllocated(10**6, None, "prefill"))  # type: ignore[arg-type]
    scene.pressed.bus.emit(ObserverStopped("planted by the test"))
    scene.host.broken = True
    scene.doomed.rig.failure = RuntimeError("planted by the test")
    refused = clients(scene.doomed.server, 2, lambda n: greedy("refused"), pause=0.1)
    with refused, lies(scene.sick.bus):
        fired(run, {"KvscopeGpuDegraded fewer"})
        scene.hardware.change({"count": 0})
        fired(run, AFTERWARDS)
    scene.hardware.change({"count": 2})
    scene.sick.resynchronise()
    scene.slow_exporter.resynchronise()
    scene.doomed.restart()
    scene.pressed.restart()
    scene.host.broken = False


def test_every_other_alert_is_provoked() -> None:
    assert sorted(SIDE_BY_SIDE | AFTERWARDS | AT_LAST) == NAMES


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_an_alert_arrives_whole_and_is_resolved(notices: list[Notice], name: str) -> None:
    mine = [notice for notice in notices if key(notice.labels) == name]
    assert {notice.status for notice in mine} == {"firing", "resolved"}
    for notice in mine:
        assert notice.receiver == RECEIVERS[notice.labels["severity"]]
        assert notice.annotations.keys() - {"servers"} == {
            *("summary", "description", "runbook_url", "dashboard_url"),
        }
        of_all = notice.labels["topic"].startswith("slo-") and "instance" not in notice.labels
        assert ("servers" in notice.annotations) == of_all
        for text in notice.annotations.values():
            assert text
            assert not HOLES.search(text), text
        assert not re.search(r"=(&|$)", notice.annotations["dashboard_url"]), "a label is missing"


@pytest.mark.nightly
def test_the_watchdog_arrives_and_stays(notices: list[Notice]) -> None:
    mine = {(n.receiver, n.status) for n in notices if n.labels["alertname"] == WATCHDOG}
    assert mine == {("watchdog", "firing")}


def test_the_worst_of_a_topic_speaks_alone() -> None:
    """test_messages.py compares a real Alertmanager with this."""
    here = {"job": "kvscope", "instance": "a:8000", "model_name": "m", "engine": "0"}
    gpu = {"job": "kvscope", "instance": "a:8000", "uuid": "GPU-1", "gpu": "0"}
    broken = gpu | {"instance": "g:8000", "uuid": "GPU-2"}

    def alert(name: str, severity: str, topic: str, labels: dict[str, str]) -> dict[str, Any]:
        return {"labels": {"alertname": name, "severity": severity, "topic": topic, **labels}}

    failed = {"sign": "xid", "used_by": "this server"}
    loud = [
        alert("KvscopeGpuSlow", "warning", "gpu-slow", gpu | {"sign": "clocks"}),
        alert("KvscopeGpuDegraded", "warning", "gpu", gpu | {"sign": "ecc"}),
        alert("KvscopeGpuFailed", "critical", "gpu", broken | failed),
        alert("KvscopeEngineStalled", "critical", "engine", here | {"instance": "g:8000"}),
        alert("KvscopeQueueStuck", "critical", "engine", here | {"instance": "h:8000"}),
        alert("KvscopePreemptionStorm", "warning", "kv-pool", here | {"model_name": "other"}),
        alert("KvscopeEngineDown", "critical", "engine", here | {"instance": "c:8000"}),
        alert("KvscopeGpuDegraded", "warning", "gpu", gpu | {"instance": "c:8000", "sign": "ecc"}),
        alert("KvscopeDeviceMemoryTight", "warning", "device-memory", here | {"sign": "oom"}),
    ]
    silenced = [
        alert("KvscopeReplicaSlow", "warning", "outlier", here | {"instance": "a:8000"}),
        alert("KvscopeGpuDegraded", "warning", "gpu", broken | {"sign": "xid-warning"}),
        alert("KvscopeGpuSlow", "warning", "gpu-slow", broken | {"sign": "clocks"}),
        alert("KvscopePreemptionStorm", "warning", "kv-pool", here | {"instance": "g:8000"}),
        alert("KvscopeFiguresWrong", "warning", "exporter", here | {"instance": "g:8000"}),
        alert("KvscopePreemptionStorm", "warning", "kv-pool", here | {"instance": "h:8000"}),
        alert("KvscopeFiguresWrong", "warning", "exporter", here | {"instance": "c:8000"}),
    ]
    firings = {
        Firing(tuple(sorted(each["labels"].items())), 0, 60): each in silenced
        for each in (*loud, *silenced)
    }
    held = held_back([*firings], inhibition_rules(SHIPPED))
    assert held == {firing for firing, is_silenced in firings.items() if is_silenced}


def test_a_host_close_to_its_limit_is_read_as_such(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.use(0.98)
    memory = host.read(4242)
    assert memory.unreclaimable == round(0.98 * Host.LIMIT)
    assert memory.limit == Host.LIMIT
