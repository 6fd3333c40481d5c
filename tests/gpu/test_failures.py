"""A sick driver: what disappears, what stays, and that it comes back by itself."""

import logging
import time
from collections.abc import Callable

import pytest

from kvscope_exporter.machine.gpu import GpuPoller
from tests.fakes.nvml import STATES, Simulated, h200, machine
from tests.fakes.nvml.states import UUID
from tests.gpu.scrapes import OWN_FAMILIES, Scrapes, torch_sample
from tests.support.waiting import wait_for

Start = Callable[..., GpuPoller]


def up(scrapes: Scrapes) -> float | None:
    return scrapes.value("kvscope_gpu_nvml_up")


@pytest.mark.parametrize("code", [15, 16], ids=["lost", "reset_required"])
def test_a_lost_gpu_is_down_alone_and_comes_back(
    hardware: Simulated, start: Start, code: int
) -> None:
    hardware.become(STATES["two_h200"]())
    scrapes = Scrapes(start())
    scrapes.tell(torch_sample())
    hardware.change({"gpu.0.error": code})
    wait_for(lambda: scrapes.value("kvscope_gpu_up", gpu="0") == 0)
    assert scrapes.value("kvscope_gpu_up", gpu="0", uuid=UUID.format(0)) == 0, "from the cache"
    assert {key[0] for key in scrapes.series("kvscope_gpu_memory_total_bytes")} == {"1"}
    assert not scrapes.components(UUID.format(0))
    assert scrapes.value("kvscope_gpu_up", gpu="1") == 1
    assert up(scrapes) == 1
    hardware.change({"gpu.0.error": None})
    wait_for(lambda: scrapes.value("kvscope_gpu_up", gpu="0") == 1)
    assert scrapes.value("kvscope_gpu_memory_total_bytes", gpu="0") is not None


def test_a_gpu_that_is_lost_from_the_start_is_found(hardware: Simulated, start: Start) -> None:
    hardware.become(STATES["one_lost"]())
    scrapes = Scrapes(start())
    assert scrapes.value("kvscope_gpu_up", gpu="1") == 0
    hardware.change({"gpu.1.error": None})
    wait_for(lambda: scrapes.value("kvscope_gpu_up", gpu="1", uuid=UUID.format(1)) == 1)
    hardware.raise_xid(1, 95)
    wait_for(lambda: scrapes.value("kvscope_gpu_xid_events_total", gpu="1", xid="95") == 1)


def test_a_gpu_whose_memory_call_fails_is_not_up(hardware: Simulated, start: Start) -> None:
    scrapes = Scrapes(start())
    hardware.change({"gpu.0.memory.used": "!999"})
    wait_for(lambda: scrapes.value("kvscope_gpu_up") == 0)
    labels = {"call": "DeviceGetMemoryInfo_v2", "code": "unknown"}
    assert (scrapes.value("kvscope_gpu_nvml_errors_total", **labels) or 0) > 0
    hardware.change({"gpu.0.memory.used": 5})
    wait_for(lambda: scrapes.value("kvscope_gpu_up") == 1)


@pytest.mark.parametrize(
    ("changes", "repair"),
    [
        ({"count": 0}, {"count": 1}),
        ({"call.nvmlDeviceGetCount_v2.error": 18}, {"call.nvmlDeviceGetCount_v2.error": None}),
        ({"call.nvmlDeviceGetCount_v2.error": 1}, {"call.nvmlDeviceGetCount_v2.error": None}),
        (
            {"call.nvmlDeviceGetCount_v2.error": 999, "call.nvmlInitWithFlags.error": 999},
            {"call.nvmlDeviceGetCount_v2.error": None, "call.nvmlInitWithFlags.error": None},
        ),
    ],
    ids=["zero_devices", "driver_replaced", "uninitialized", "container_lost_its_devices"],
)
def test_a_failure_of_the_library_takes_all_devices_and_ends(
    hardware: Simulated,
    start: Start,
    changes: dict[str, object],
    repair: dict[str, object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    scrapes = Scrapes(start())
    hardware.change(changes)
    wait_for(lambda: up(scrapes) == 0)
    assert scrapes.names("kvscope_gpu") == {*OWN_FAMILIES, "kvscope_gpu_nvml_errors"}
    hardware.change(repair)
    wait_for(lambda: up(scrapes) == 1 and scrapes.value("kvscope_gpu_up") == 1)
    lines = [record.message for record in caplog.records]
    down = [line for line in lines if "NVML is down" in line]
    assert down
    assert len(down) == len(set(down)), "each reason is said once, however often tried"
    assert ("restart this process" in "".join(lines)) == (18 in changes.values())
    assert any("NVML is up again" in line for line in lines)


def test_a_driver_that_is_loaded_after_the_start_is_found(
    hardware: Simulated, start: Start
) -> None:
    hardware.unload()
    poller = start(wait=False)
    scrapes = Scrapes(poller)
    wait_for(lambda: poller.state == "down")
    assert up(scrapes) == 0
    assert poller.problem == "nvmlInitWithFlags: driver_not_loaded (9)"
    hardware.become(machine(h200()))
    wait_for(lambda: up(scrapes) == 1)
    hardware.unload()
    wait_for(lambda: up(scrapes) == 0)
    hardware.become(machine(h200(), h200()))
    wait_for(lambda: len(scrapes.series("kvscope_gpu_up")) == 2)


def test_another_number_of_gpus_begins_anew(hardware: Simulated, start: Start) -> None:
    scrapes = Scrapes(start())
    hardware.become(STATES["two_h200"]())
    wait_for(lambda: len(scrapes.series("kvscope_gpu_up")) == 2)


def test_errors_are_counted_by_call_and_code_and_survive(hardware: Simulated, start: Start) -> None:
    scrapes = Scrapes(start())
    assert not scrapes.series("kvscope_gpu_nvml_errors_total")
    hardware.change({"gpu.0.power_mw": "!10"})
    labels = {"call": "DeviceGetPowerUsage", "code": "timeout"}
    wait_for(lambda: (scrapes.value("kvscope_gpu_nvml_errors_total", **labels) or 0) > 2)
    assert scrapes.value("kvscope_gpu_power_watts") is None
    assert scrapes.value("kvscope_gpu_temperature_celsius") is not None
    hardware.change({"gpu.0.power_mw": 1000, "count": 0})
    wait_for(lambda: up(scrapes) == 0)
    assert (scrapes.value("kvscope_gpu_nvml_errors_total", **labels) or 0) > 2


def test_what_is_refused_is_asked_once_and_is_no_error(hardware: Simulated, start: Start) -> None:
    hardware.become(STATES["processes_denied"]())
    hardware.change({"gpu.0.energy_mj": None})
    poller = start()
    scrapes = Scrapes(poller)
    calls = {
        name: hardware.calls(name)
        for name in (
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlDeviceGetTotalEnergyConsumption",
        )
    }
    polls = hardware.calls("nvmlDeviceGetPowerUsage")
    wait_for(lambda: hardware.calls("nvmlDeviceGetPowerUsage") > polls + 3)
    assert {name: hardware.calls(name) for name in calls} == calls
    assert not scrapes.series("kvscope_gpu_nvml_errors_total")
    assert not scrapes.series("kvscope_gpu_processes")
    assert poller.refused[0, "DeviceGetComputeRunningProcesses_v3"] == "no_permission"
    assert poller.refused[0, "DeviceGetTotalEnergyConsumption"] == "not_supported"


def test_xids_are_counted_each_and_outlive_the_driver(hardware: Simulated, start: Start) -> None:
    hardware.become(STATES["two_h200"]())
    hardware.raise_xid(0, 13)  # before anybody listened
    scrapes = Scrapes(start())
    name = "kvscope_gpu_xid_events_total"
    hardware.raise_xid(1, 94, 94, 79)
    wait_for(lambda: scrapes.value(name, gpu="1", xid="79") == 1)
    assert scrapes.value(name, gpu="1", xid="94", uuid=UUID.format(1)) == 2
    assert not scrapes.series(name, gpu="0")
    age = scrapes.value("kvscope_gpu_xid_last_age_seconds", gpu="1", xid="94")
    assert age is not None
    before = time.monotonic() - age
    hardware.change({"count": 0})
    wait_for(lambda: up(scrapes) == 0)
    assert scrapes.value(name, gpu="1", xid="94") == 2
    hardware.change({"count": 2})
    wait_for(lambda: up(scrapes) == 1)
    hardware.raise_xid(1, 94)
    wait_for(lambda: scrapes.value(name, gpu="1", xid="94") == 3)
    age = scrapes.value("kvscope_gpu_xid_last_age_seconds", gpu="1", xid="94")
    assert age is not None
    assert time.monotonic() - age > before


def test_a_storm_of_xids_is_counted_and_logged_once(
    hardware: Simulated, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    scrapes = Scrapes(start())
    hardware.raise_xid(0, *([31] * 500), *range(500, 1000))
    name = "kvscope_gpu_xid_events_total"
    wait_for(lambda: scrapes.value(name, xid="other") == 500)
    assert scrapes.value(name, xid="31") == 500
    assert len([r for r in caplog.records if "XID" in r.message]) == 2
    assert up(scrapes) == 1


def test_a_card_without_events_is_polled_all_the_same(hardware: Simulated, start: Start) -> None:
    hardware.change({"gpu.0.events": "!3"})
    assert up(Scrapes(start())) == 1
