"""When an XID is over: once its device was reset, and not before."""

import logging
from collections.abc import Callable

import pytest

from kvscope_exporter.machine.gpu import GpuPoller
from tests.fakes.nvml import Simulated, h200, machine
from tests.gpu.scrapes import Scrapes
from tests.support.waiting import wait_for

Start = Callable[..., GpuPoller]
NAME = "kvscope_gpu_xid_events_total"


def xids(scrapes: Scrapes) -> set[tuple[str, ...]]:
    """(gpu, xid) of the series on one page, the same for all families."""
    page = scrapes.page()
    counted, ages = (
        {(labels["gpu"], labels["xid"]) for labels, _ in page.get(name, [])}
        for name in (NAME, "kvscope_gpu_xid_last_age_seconds")
    )
    assert counted == ages
    return counted


def released_for(hardware: Simulated, poller: GpuPoller, changes: dict[str, object]) -> None:
    assert poller.release() == "released"
    hardware.change(changes)
    poller.resume()
    wait_for(lambda: poller.state == "polling")


@pytest.fixture
def watched(hardware: Simulated, start: Start) -> tuple[GpuPoller, Scrapes]:
    """Two cards; the first has had a critical XID and needs a reset, the second one as well."""
    hardware.become(machine(h200(), h200()))
    poller = start()
    scrapes = Scrapes(poller)
    hardware.raise_xid(0, 79, 95)
    hardware.raise_xid(1, 79)
    hardware.change({"gpu.0.field.230": 1, "gpu.1.field.230": 1})
    wait_for(lambda: len(xids(scrapes)) == 3)
    wait_for(lambda: scrapes.value("kvscope_gpu_recovery_action", gpu="0") == 1)
    wait_for(lambda: scrapes.value("kvscope_gpu_recovery_action", gpu="1") == 1)
    return poller, scrapes


def test_a_reset_during_a_release_ends_the_xids_of_the_card_that_was_reset(
    hardware: Simulated,
    watched: tuple[GpuPoller, Scrapes],
    caplog: pytest.LogCaptureFixture,
) -> None:
    poller, scrapes = watched
    with caplog.at_level(logging.INFO, "kvscope_exporter.machine.gpu"):
        released_for(hardware, poller, {"gpu.0.field.230": 0})
        wait_for(lambda: xids(scrapes) == {("1", "79")}, "the other card was not reset")
    assert "GPU 0 was reset: XID 79, 95 is over" in caplog.text
    hardware.raise_xid(0, 79)
    wait_for(lambda: ("0", "79") in xids(scrapes), "a new one counts")
    assert scrapes.value(NAME, gpu="0", xid="79") == 1


def test_a_release_without_a_reset_ends_nothing(
    hardware: Simulated, watched: tuple[GpuPoller, Scrapes]
) -> None:
    poller, scrapes = watched
    released_for(hardware, poller, {})
    wait_for(lambda: scrapes.value("kvscope_gpu_recovery_action", gpu="0") == 1)
    assert xids(scrapes) == {("0", "79"), ("0", "95"), ("1", "79")}
    hardware.change({"gpu.0.field.230": 0})
    wait_for(lambda: xids(scrapes) == {("1", "79")}, "it has recovered in the end")


def test_a_driver_that_does_not_say_what_a_card_needs_is_believed_after_a_release(
    hardware: Simulated, watched: tuple[GpuPoller, Scrapes]
) -> None:
    poller, scrapes = watched
    silent: dict[str, object] = {"gpu.0.field.230": None, "gpu.1.field.230": None}
    released_for(hardware, poller, silent)
    wait_for(lambda: xids(scrapes) == set())


def test_a_card_that_was_lost_and_is_back_has_no_xid(
    hardware: Simulated, watched: tuple[GpuPoller, Scrapes]
) -> None:
    _, scrapes = watched
    hardware.change({"gpu.0.error": 15})
    wait_for(lambda: scrapes.value("kvscope_gpu_up", gpu="0") == 0)
    assert ("0", "79") in xids(scrapes), "it is still lost"
    hardware.change({"gpu.0.error": None, "gpu.0.field.230": 0})
    wait_for(lambda: xids(scrapes) == {("1", "79")})


def test_a_failure_of_nvml_is_no_reset(hardware: Simulated, start: Start) -> None:
    scrapes = Scrapes(start())
    hardware.raise_xid(0, 95)
    wait_for(lambda: xids(scrapes) == {("0", "95")})
    hardware.change({"count": 0})
    wait_for(lambda: scrapes.value("kvscope_gpu_nvml_up") == 0)
    hardware.change({"count": 1})
    wait_for(lambda: scrapes.value("kvscope_gpu_nvml_up") == 1)
    assert xids(scrapes) == {("0", "95")}
