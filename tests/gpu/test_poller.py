"""The poller as a tenant of the driver: few calls, nothing leaked, lets go on request."""

import gc
import os
import threading
import time
from collections.abc import Callable

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from kvscope_exporter.clock import Clock
from kvscope_exporter.machine.gpu import Cadence, GpuPoller
from kvscope_exporter.machine.gpu.calls import Calls
from kvscope_exporter.machine.gpu.recovery import Recovery
from kvscope_exporter.machine.gpu.session import Due, Session
from kvscope_exporter.machine.gpu.xids import Xids
from kvscope_exporter.web.orders import gpu_router
from tests.fakes.nvml import STATES, Simulated, h200, machine
from tests.gpu.scrapes import OWN_FAMILIES, Scrapes
from tests.support.waiting import wait_for

Start = Callable[..., GpuPoller]
POLLS = 10_000
PAGE_BYTES = 4096
MAX_GROWTH_BYTES = 2**20


def open_session() -> Session:
    xids, clock = Xids(Clock()), Clock()
    recovery = Recovery(xids, clock)
    return Session(Calls(lambda call, code: None), xids, {}, clock, {}, recovery, "start")


def resident_bytes() -> int:
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * PAGE_BYTES


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def wedge(hardware: Simulated, milliseconds: int) -> None:
    """Returns when a call hangs."""
    name = "nvmlDeviceGetMemoryInfo_v2"
    hardware.change({f"call.{name}.delay_ms": milliseconds})
    before = hardware.calls(name)
    wait_for(lambda: hardware.calls(name) > before)


@pytest.mark.alone
def test_ten_thousand_polls_leak_nothing(hardware: Simulated) -> None:
    session = open_session()
    everything = Due(processes=True, sensors=True)
    for _ in range(1000):
        session.poll(everything)
    before = (open_files(), threading.active_count(), resident_bytes())
    for _ in range(POLLS):
        session.poll(everything)
    after = (open_files(), threading.active_count(), resident_bytes())
    assert session.close()
    assert after[0] <= before[0]  # a test before this one may let go of some meanwhile
    assert after[1] <= before[1]
    assert after[2] - before[2] < MAX_GROWTH_BYTES


@pytest.mark.alone
def test_a_hundred_initialisations_leak_nothing(
    hardware: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cycle() -> None:
        session = open_session()
        session.poll(Due(processes=True, sensors=True))
        assert session.close()

    hardware.change({"gpu.0.events": "!3"})  # no watcher to wait for
    cycle()
    before = (open_files(), threading.active_count())
    for _ in range(100):
        cycle()
    assert open_files() <= before[0]
    assert threading.active_count() <= before[1]
    assert hardware.references == 0


def test_processes_and_sensors_are_not_asked_at_every_cycle(
    hardware: Simulated, start: Start
) -> None:
    polled = "nvmlDeviceGetMemoryInfo_v2"
    seldom = {
        "nvmlDeviceGetComputeRunningProcesses_v3": 2,  # the size, then the list
        "nvmlDeviceGetPowerUsage": 1,
        "nvmlDeviceGetPcieThroughput": 0,  # it samples for 20 ms per direction
    }
    before = {name: hardware.calls(name) for name in (polled, *seldom)}
    poller = start(Cadence(memory=0.01, processes=3600, sensors=3600))
    wait_for(lambda: hardware.calls(polled) >= before[polled] + 20)
    poller.stop(timeout=5)
    assert {name: hardware.calls(name) - before[name] for name in seldom} == seldom


def test_release_lets_nvml_go_and_resume_takes_it_up(hardware: Simulated, start: Start) -> None:
    poller = start()
    scrapes = Scrapes(poller)
    assert hardware.references == 1
    assert poller.release() == "released"
    assert hardware.references == 0
    assert scrapes.names("kvscope_gpu") == OWN_FAMILIES
    assert scrapes.value("kvscope_gpu_nvml_up") == 0
    calls = hardware.calls()
    time.sleep(0.05)
    assert hardware.calls() == calls, "not one call while released"
    assert poller.release() == "released"
    assert poller.resume() == "starting"
    wait_for(lambda: scrapes.value("kvscope_gpu_nvml_up") == 1)
    assert poller.state == "polling"


def test_release_of_a_poller_that_is_down_or_stopped(hardware: Simulated, start: Start) -> None:
    hardware.unload()
    poller = start(wait=False)
    wait_for(lambda: poller.state == "down")
    assert poller.release() == "released"
    poller.stop(timeout=5)
    assert poller.state == "off"
    assert poller.release() == "off"
    assert poller.resume() == "off"


def test_a_release_during_a_wedged_call_says_so_and_happens_later(
    hardware: Simulated, start: Start
) -> None:
    poller = start()
    wedge(hardware, 500)
    assert poller.release(timeout=0.05) == "releasing"
    wait_for(lambda: poller.state == "released")
    assert hardware.references == 0


def test_the_routes_release_and_resume(hardware: Simulated, start: Start) -> None:
    poller = start()
    app = FastAPI()
    app.include_router(gpu_router(poller))
    client = TestClient(app)
    assert client.post("/api/gpu/release").json() == {"state": "released"}
    assert hardware.references == 0
    assert client.post("/api/gpu/resume").json() == {"state": "starting"}
    wait_for(lambda: poller.state == "polling")
    wedge(hardware, 3000)
    held = client.post("/api/gpu/release")
    assert (held.status_code, held.json()) == (202, {"state": "releasing"})


def test_a_poller_starts_once_and_its_cadence_is_positive(start: Start) -> None:
    poller = start()
    with pytest.raises(RuntimeError, match="started before"):
        poller.start()
    with pytest.raises(ValueError, match="memory must be positive, got 0"):
        Cadence(memory=0)


def test_a_scrape_makes_no_call(hardware: Simulated, start: Start) -> None:
    hardware.become(machine(*([h200()] * 8)))
    poller = start(Cadence(memory=60, processes=60, sensors=60))
    scrapes = Scrapes(poller)
    calls = hardware.calls("nvmlDeviceGetMemoryInfo_v2")
    for _ in range(5):
        scrapes.exporter.render()
    assert hardware.calls("nvmlDeviceGetMemoryInfo_v2") == calls
    assert len(scrapes.series("kvscope_gpu_up")) == 8


def test_every_machine_of_the_double_is_polled_without_an_error(
    hardware: Simulated, start: Start
) -> None:
    for name in STATES:
        hardware.become(STATES[name]())
        scrapes = Scrapes(start())
        assert scrapes.value("kvscope_gpu_nvml_up") == 1, name


def test_a_sample_older_than_three_intervals_is_none(hardware: Simulated) -> None:
    ahead_ns = 0
    clock = Clock(monotonic_ns=lambda: time.monotonic_ns() + ahead_ns)
    poller = GpuPoller(Cadence(memory=60.0), clock)  # reads once, then sleeps through this test
    poller.start()
    wait_for(lambda: poller.read().sample is not None)
    ahead_ns = 175 * 10**9
    assert poller.read().sample is not None
    ahead_ns = 181 * 10**9
    assert poller.read().sample is None
    assert poller.read().last is not None, "its age is still told"
    poller.stop()
