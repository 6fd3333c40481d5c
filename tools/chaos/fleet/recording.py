"""Pages of one engine under each load, kept at intervals: what the servers of a fleet replay."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pynvml
import pytest

from kvscope_engine.config import CacheConfig, EngineConfig, ModelConfig
from kvscope_engine.introduction import Introduction
from kvscope_events.bus import EventBus
from kvscope_exporter.machine.gpu import Cadence, GpuPoller, Reading
from kvscope_exporter.targets.exporter import Exporter, in_process
from tests.fakes.nvml import GIB, MIB, Simulated, build_library, h200
from tests.fakes.nvml import machine as hardware
from tests.support.paced import SECOND
from tests.support.waiting import wait_for
from tools.chaos.fleet.engine import GPUS, Load, machine, serving
from tools.chaos.frame import Say

STEP_SECONDS = 30
"""From page to page."""
WARM_UP_SECONDS = 150
"""Until as many requests end as begin."""
LEVELS = ("quiet", "steady", "busy", "heavy")
"""Recordings of a healthy server, from the least load to the greatest."""
LOADING = "loading"
STORM, CROWDED, HALF_SPEED, THROTTLED = "storm", "crowded", "half speed", "throttled"
CLOSED = "closed"
LOADS = {
    **{
        name: Load(calls_per_second=rate)
        for name, rate in zip(LEVELS, (1.5, 3.0, 4.0, 4.7), strict=True)
    },
    STORM: Load(calls_per_second=9.0, again_seconds=2.0),
    CROWDED: Load(calls_per_second=4.3, blocks=750, queue=1000),
    HALF_SPEED: Load(calls_per_second=2.0, slower=2.0),
    THROTTLED: Load(calls_per_second=3.0, slower=1.3),
    CLOSED: Load(calls_per_second=5.0, clients=22),
}
"""A server that refuses nothing and keeps its promises serves five calls a second."""

Labels = tuple[tuple[str, str], ...]
Key = tuple[str, Labels]
"""A series: its name and its labels, sorted, as the page has them."""
Floats = npt.NDArray[np.float64]

COUNTERS = {"counter", "histogram"}
_OF_THE_PROCESS = "process_start_time_seconds"
_MACHINE_TIME = "kvscope_gpu_sample_age_seconds"
"""By the clock of the machine that records: the sample is the only one."""
_PAGE_AGE = 0.5
_CADENCE = Cadence(
    memory=0.05, processes=0.05, sensors=0.05, first_retry=0.1, last_retry=0.4, stale_intervals=1000
)
SERVER_BYTES, OTHER_BYTES = 100 * GIB, GIB
"""Memory used on each card; the other is an agent that watches it."""


@dataclass(frozen=True)
class Library:
    """All recordings behind each other, so that a server's day is a list of positions in them.

    Numbers by series and position: a counter's growth, a gauge, an age; NaN: not on that page.
    """

    counters: dict[Key, Floats]
    gauges: dict[Key, Floats]
    ages: dict[Key, Floats]
    places: dict[str, range]
    """Positions of each recording."""


def record_all(
    folder: Path,
    minutes: float,
    say: Say,
    wanted: Callable[[Key], bool],
    names: Iterable[str] = LOADS,
) -> Library:
    """The wanted series of all loads, as far as named, and of a server that loads its model.

    folder: for the driver's double.
    """
    cards = read_cards(folder)
    steps = int(minutes * 60 / STEP_SECONDS)
    names = list(names)
    places = {name: range(n * steps, (n + 1) * steps) for n, name in enumerate(names)}
    end = len(names) * steps
    places[LOADING] = range(end, end + 1)

    def table() -> dict[Key, Floats]:
        return defaultdict(lambda: np.full(end + 1, np.nan))

    library = Library(table(), table(), table(), places)
    for seed, name in enumerate(names):
        say(f"recording {name}: {minutes:g} min of {LOADS[name].calls_per_second:g} calls/s")
        with serving(LOADS[name], cards, seed) as engine:
            engine.run_until(WARM_UP_SECONDS * SECOND)
            before = _samples(engine.exporter)
            for step, position in enumerate(places[name]):
                engine.run_until((WARM_UP_SECONDS + (step + 1) * STEP_SECONDS) * SECOND)
                now = _samples(engine.exporter)
                keep(library, position, now, before, engine.now_ns / 1e9, wanted)
                before = now
            for values in library.counters.values():  # a counter may come late
                ours = values[places[name].start : places[name].stop]
                if not np.isnan(ours).all():
                    ours[np.isnan(ours)] = 0
    loading = _loading_page(cards)
    keep(library, end, loading, loading, None, wanted)
    return library


_Samples = dict[Key, tuple[str, float]]


def keep(
    library: Library,
    position: int,
    now: _Samples,
    before: _Samples,
    seconds: float | None,
    wanted: Callable[[Key], bool],
) -> None:
    """One page. seconds: the engine's clock; None: ages are 0."""
    for key, (kind, value) in now.items():
        if not wanted(key):
            continue
        if kind in COUNTERS:
            library.counters[key][position] = value - before.get(key, (kind, 0.0))[1]
        elif key[0].endswith(("_age_seconds", "_timestamp_seconds")):
            age = value if key[0].endswith("_age_seconds") else (seconds or 0.0) - value
            age = _PAGE_AGE if key[0] == _MACHINE_TIME else age
            library.ages[key][position] = 0.0 if seconds is None else age
        else:
            library.gauges[key][position] = value


def _samples(exporter: Exporter) -> _Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): (family.type, float(sample.value))
        for family in exporter.registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created") and sample.name != _OF_THE_PROCESS
    }


def _loading_page(cards: Reading) -> _Samples:
    """The page of a server that loads its model."""
    bus = EventBus()
    subscription = bus.subscribe(1 << 10)
    Introduction(EngineConfig(model=ModelConfig(), cache=CacheConfig()), bus)
    bus.flush()
    exporter = in_process(subscription, machine=machine(cards))
    exporter.start()
    try:
        with exporter.targets[0].pipeline.settled():
            pass
        return _samples(exporter)
    finally:
        exporter.stop()


def read_cards(folder: Path) -> Reading:
    """Eight H200 of NVML's double, as our poller reads them; it is compiled in `folder`."""
    processes = f"{os.getpid()}:{SERVER_BYTES},77:{OTHER_BYTES}"
    used = SERVER_BYTES + OTHER_BYTES + 18 * MIB
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("FAKE_NVML_STATE", str(folder / "nvml.state"))
        patched.setattr(pynvml, "nvmlLib", pynvml.CDLL(str(build_library(folder))))
        patched.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        Simulated(folder / "nvml.state").become(hardware(*[h200(processes, used)] * GPUS))
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
