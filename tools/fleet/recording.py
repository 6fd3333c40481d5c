"""Pages of one engine under one load, kept at intervals: what the servers of a fleet replay."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.config import CacheConfig, EngineConfig, ModelConfig
from engine.introduction import Introduction
from exporter.machine.gpu import Reading
from exporter.watched.exporter import Exporter, in_process
from kvscope_events.bus import EventBus
from tests.support.paced import SECOND
from tools.fleet.engine import Load, machine, serving

STEP_SECONDS = 30
"""From page to page."""
WARM_UP_SECONDS = 150
"""Until as many requests end as begin."""

Labels = tuple[tuple[str, str], ...]
Key = tuple[str, Labels]
"""A series: its name and its labels, sorted, as the page has them."""
Floats = npt.NDArray[np.float64]

COUNTERS = {"counter", "histogram"}
AGES = ("_age_seconds", "_timestamp_seconds")
_OF_THE_PROCESS = "process_start_time_seconds"
_MACHINE_TIME = "kvscope_gpu_sample_age_seconds"
"""By the clock of the machine that records: the sample is the only one."""
_PAGE_AGE = 0.5


@dataclass(frozen=True)
class Recording:
    """For each series one number a page: a counter's growth, an age."""

    counters: dict[Key, Floats]
    gauges: dict[Key, Floats]
    ages: dict[Key, Floats]

    @property
    def steps(self) -> int:
        return len(next(iter(self.counters.values())))


def record(load: Load, cards: Reading, *, seed: int, minutes: float) -> Recording:
    """Serve the load for this many minutes of simulated time, after a warm-up."""
    steps = int(minutes * 60 / STEP_SECONDS)
    counters: dict[Key, list[float]] = {}
    gauges: dict[Key, list[float]] = {}
    ages: dict[Key, list[float]] = {}
    with serving(load, cards, seed) as engine:
        engine.run_until(WARM_UP_SECONDS * SECOND)
        before = _samples(engine.exporter)
        for step in range(steps):
            engine.run_until((WARM_UP_SECONDS + (step + 1) * STEP_SECONDS) * SECOND)
            now = _samples(engine.exporter)
            for key, (kind, value) in now.items():
                if kind in COUNTERS:
                    was = before.get(key, (kind, 0.0))[1]
                    counters.setdefault(key, [0.0] * steps)[step] = value - was
                elif key[0].endswith(AGES):
                    age = value if key[0].endswith("_age_seconds") else engine.now_ns / 1e9 - value
                    age = _PAGE_AGE if key[0] == _MACHINE_TIME else age
                    ages.setdefault(key, [np.nan] * steps)[step] = age
                else:
                    gauges.setdefault(key, [np.nan] * steps)[step] = value
            before = now
    return Recording(*(_arrays(found) for found in (counters, gauges, ages)))


def _samples(exporter: Exporter) -> dict[Key, tuple[str, float]]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): (family.type, float(sample.value))
        for family in exporter.registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created") and sample.name != _OF_THE_PROCESS
    }


def _arrays(found: Mapping[Key, list[float]]) -> dict[Key, Floats]:
    return {key: np.array(values) for key, values in found.items()}


def record_loading(cards: Reading) -> Recording:
    """One page of a server that loads its model."""
    bus = EventBus()
    subscription = bus.subscribe(1 << 10)
    Introduction(EngineConfig(model=ModelConfig(), cache=CacheConfig()), bus)
    bus.flush()
    exporter = in_process(subscription, machine=machine(cards))
    exporter.start()
    try:
        with exporter.targets[0].pipeline.settled():
            pass
        found = _samples(exporter)
    finally:
        exporter.stop()
    parts: list[dict[Key, Floats]] = [{}, {}, {}]
    for key, (kind, value) in found.items():
        number = 0 if kind in COUNTERS else 2 if key[0].endswith(AGES) else 1
        parts[number][key] = np.array([value if number == 1 else 0.0])
    return Recording(*parts)
