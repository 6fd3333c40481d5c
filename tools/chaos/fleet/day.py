"""One server's day: pages of recordings in turn, as its load asks for them, and what befell it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tools.chaos.fleet.recording import (
    LEVELS,
    LOADING,
    STEP_SECONDS,
    Floats,
    Key,
    Labels,
    Library,
)

DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Times of scrapes: a number of them, ending at a moment."""

    end: int
    """Unix time in seconds."""
    step: int
    count: int

    @property
    def times(self) -> Floats:
        return self.end - self.step * np.arange(self.count - 1, -1, -1, dtype=np.float64)

    @property
    def hours(self) -> float:
        """From the first page to the last."""
        return self.count * self.step / 3600

    def at(self, hours: float) -> int:
        """Number of the page this many hours after the first."""
        return round(hours * 3600 / self.step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A server's name, model and share of the load."""

    number: int
    model: str
    pod: str
    cluster: str

    @property
    def target(self) -> dict[str, str]:
        """Labels of everything that Prometheus has of it."""
        return {
            "cluster": self.cluster,
            "namespace": "serving",
            "job": "kvscope",
            "instance": f"{self.pod}:8000",
            "pod": self.pod,
        }


@dataclass
class Day:
    """The day of one target. Faults change the arrays, page by page."""

    place: Place
    clock: Clock
    library: Library
    positions: npt.NDArray[np.int64] = field(init=False)
    up: Floats = field(init=False)
    """1 or 0, and NaN where there is no such target; only a target that is up has a page."""
    starts: list[int] = field(default_factory=list)
    """Pages that are the first of a process."""
    counters: dict[Key, Floats] = field(init=False)
    """Growth of each since the previous page."""
    gauges: dict[Key, Floats] = field(init=False)
    ages: dict[Key, Floats] = field(init=False)

    def __post_init__(self) -> None:
        count = self.clock.count
        self.positions = np.zeros(count, dtype=np.int64)
        self.up = np.ones(count)
        self._positions_of_load()
        self.read(slice(0, count))

    def _positions_of_load(self) -> None:
        """A wave over the day, a share of its own, noise; between two levels either, by chance."""
        draw = np.random.default_rng(self.place.number)
        hours = self.clock.times / DAY_SECONDS * math.tau
        wave = 0.55 + 0.45 * np.sin(hours)
        share = draw.uniform(0.8, 1.0) * wave * (len(LEVELS) - 1)
        noise = draw.normal(0, 0.15, self.clock.count)
        floor = np.floor(share + noise + draw.uniform(0, 1, self.clock.count))
        level = np.clip(floor, 0, len(LEVELS) - 1).astype(np.int64)
        phase = int(draw.integers(0, 1000))
        for number, name in enumerate(LEVELS):
            self.positions[level == number] = self._turns(name, phase)[level == number]

    def _turns(self, name: str, phase: int) -> npt.NDArray[np.int64]:
        """Positions of a recording over and over."""
        place = self.library.places[name]
        turns = (np.arange(self.clock.count) + phase) % len(place)
        return place.start + turns

    def play(self, name: str, when: slice) -> None:
        """Another recording in that time."""
        self.positions[when] = self._turns(name, self.place.number * 7)[when]
        self.read(when)

    def read(self, when: slice) -> None:
        """Read the pages at the positions again."""
        if when == slice(0, self.clock.count):
            self.counters, self.gauges, self.ages = {}, {}, {}
        chosen = self.positions[when]
        for own, recorded, scale in (
            (self.counters, self.library.counters, self.clock.step / STEP_SECONDS),
            (self.gauges, self.library.gauges, 1.0),
            (self.ages, self.library.ages, 1.0),
        ):
            for key, numbers in recorded.items():
                whole = own.setdefault(key, np.full(self.clock.count, np.nan))
                whole[when] = numbers[chosen] * scale

    def restart(self, at: int, loading: int) -> None:
        """A new process from that page on, which loads its model for this many pages."""
        self.starts.append(at)
        until = min(at + loading, self.clock.count)
        self.play(LOADING, slice(at, until))
        waited = self.clock.step * np.arange(1, until - at + 1)
        for key, ages in self.ages.items():
            if key[0] == "kvscope_source_last_message_age_seconds":
                ages[at:until] = waited

    def lines(self) -> Iterator[tuple[str, Labels, Floats]]:
        """Every series of the target: name, labels, and a sample for each page or NaN."""
        yield "up", self._labels(()), self.up
        absent = ~(self.up == 1)
        for (name, labels), growth in self.counters.items():
            total = self._total(growth)
            total[absent] = np.nan
            yield name, self._labels(labels), total
        for (name, labels), values in self.gauges.items():
            yield name, self._labels(labels), np.where(absent, np.nan, values)
        for (name, labels), ages in self.ages.items():
            is_age = name.endswith("_age_seconds")
            values = ages if is_age else self.clock.times - ages
            yield name, self._labels(labels), np.where(absent, np.nan, values)
        began = np.full(self.clock.count, self.clock.times[0] - DAY_SECONDS)
        for start in self.starts:
            began[start:] = self.clock.times[start]
        began[absent] = np.nan
        yield "process_start_time_seconds", self._labels(()), began

    def _total(self, growth: Floats) -> Floats:
        """A counter, which begins at 0 with each process."""
        total = np.cumsum(np.nan_to_num(growth))
        for start in sorted(self.starts):
            total[start:] -= total[start] - np.nan_to_num(growth[start])
        total[np.isnan(growth)] = np.nan
        return total

    def _labels(self, labels: Labels) -> Labels:
        own = dict(labels)
        if "model_name" in own:
            own["model_name"] = self.place.model
        if "uuid" in own:
            own["uuid"] = f"{own['uuid']}-{self.place.cluster}-{self.place.number}"
        return tuple(sorted((own | self.place.target).items()))
