"""Eight H200 of NVML's double, as our poller reads them."""

import os
from pathlib import Path

import pynvml
import pytest

from exporter.machine.gpu import Cadence, GpuPoller, Reading
from tests.fakes.nvml import GIB, MIB, Simulated, build_library, h200, machine
from tests.support.waiting import wait_for
from tools.fleet.engine import GPUS

_CADENCE = Cadence(
    memory=0.05, processes=0.05, sensors=0.05, first_retry=0.1, last_retry=0.4, stale_intervals=1000
)
SERVER_BYTES, OTHER_BYTES = 100 * GIB, GIB
"""Memory used on each card; the other is an agent that watches it."""


def read_cards(folder: Path) -> Reading:
    """Once, with everything in it. The double is compiled in `folder`."""
    processes = f"{os.getpid()}:{SERVER_BYTES},77:{OTHER_BYTES}"
    used = SERVER_BYTES + OTHER_BYTES + 18 * MIB
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("FAKE_NVML_STATE", str(folder / "nvml.state"))
        patched.setattr(pynvml, "nvmlLib", pynvml.CDLL(str(build_library(folder))))
        patched.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        Simulated(folder / "nvml.state").become(machine(*[h200(processes, used)] * GPUS))
        poller = GpuPoller(_CADENCE)
        poller.start()
        try:
            wait_for(lambda: _whole(poller.read()), "the double has been read")
            return poller.read()
        finally:
            poller.stop(timeout=10)


def _whole(reading: Reading) -> bool:
    devices = reading.sample.devices if reading.sample else ()
    return len(devices) == GPUS and all(
        card.up and card.processes is not None and card.sensors.temperature_celsius is not None
        for card in devices
    )
