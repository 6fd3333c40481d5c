"""Cost of watching eight GPUs, on the simulated driver: a scrape, and the poller.

    python -m benchmarks.gpu_cost

The scrape: time in the GPU module (families built from the last sample) and of the whole page. The
poller: processor time of its two threads at the default cadence, as a share of one core, with the
driver's answers, which here are file look-ups of our own library, and the bare loop of cycles.
"""

import ctypes
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

import pynvml

from benchmarks.report import environment
from exporter.clock import Clock
from exporter.collect.device_memory import collect_ledger_of_devices, collect_torch
from exporter.collect.engine_memory import EngineMemory
from exporter.collect.families import Families
from exporter.collect.gpu import collect_gpus, collect_nvml
from exporter.fold import DeviceMemory
from exporter.machine.gpu import GpuPoller
from tests.fakes.nvml import Simulated, build_library, h200, machine
from tests.fakes.nvml.states import UUID
from tests.gpu.scrapes import SERVER_PID, Scrapes, torch_sample
from tests.support.waiting import wait_for

GPUS = 8
SCRAPES = 300
WARM_UP = 20
POLL_SECONDS = 20
MILLISECOND = 1e-3


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        library = ctypes.CDLL(str(build_library(Path(folder))))
        pynvml.nvmlLib = library
        os.environ["FAKE_NVML_STATE"] = f"{folder}/state"
        Simulated(Path(folder) / "state", library).become(machine(*[h200()] * GPUS))
        poller = GpuPoller()
        poller.start()
        wait_for(lambda: poller.read().sample is not None)
        rows = {**_poller_share(), **_scrapes(poller)}
        poller.stop()
    for name, value in rows.items():
        print(f"{name:32s} {value:9.4f}", file=sys.stderr)
    print(json.dumps({"environment": environment(), "gpus": GPUS, **rows}))


def _poller_share() -> dict[str, float]:
    """Processor time of this process, in which nothing else runs meanwhile."""
    before, began = time.process_time(), time.perf_counter()
    time.sleep(POLL_SECONDS)
    spent = time.process_time() - before
    return {"poller_percent_of_a_core": 100 * spent / (time.perf_counter() - began)}


def _scrapes(poller: GpuPoller) -> dict[str, float]:
    clock = Clock()
    fold = DeviceMemory()
    scrapes = Scrapes(poller)
    families = Families({"model_name": "demo", "engine": "0"}, clock)
    module: list[float] = []
    page: list[float] = []
    for number in range(SCRAPES + WARM_UP):
        if number % 100 == 0:
            for gpu in range(GPUS):
                sample = torch_sample(device_uuid=UUID.format(gpu))
                fold.apply(sample)
                scrapes.tell(sample)
        fold_now_ns = 0  # when `apply` dates its samples
        began = time.perf_counter()
        reading = poller.read()
        assert reading.sample is not None
        list(collect_nvml(families, reading))
        devices = reading.sample.devices
        engines = EngineMemory([fold.samples()], [fold.activation_peaks])
        list(collect_gpus(families, reading.sample, devices))
        list(collect_ledger_of_devices(families, devices, engines, {SERVER_PID}, fold_now_ns))
        list(collect_torch(families, engines, devices, fold_now_ns))
        module.append(time.perf_counter() - began)
        began = time.perf_counter()
        scrapes.exporter.render()
        page.append(time.perf_counter() - began)
    return {
        **_spread("gpu_module_ms", module[WARM_UP:]),
        **_spread("page_ms", page[WARM_UP:]),
    }


def _spread(name: str, seconds: list[float]) -> dict[str, float]:
    return {
        f"{name}_median": median(seconds) / MILLISECOND,
        f"{name}_p99": quantiles(seconds, n=100)[98] / MILLISECOND,
    }


if __name__ == "__main__":
    main()
