"""Plays a load, keeps what was forecast, and compares it with what came."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from benchmarks.forecast.loads import Load
from benchmarks.forecast.rivals import WINDOWS, Scrapes, usage_above
from benchmarks.forecast.simulator import SECOND, Simulator
from exporter.fold.exhaustion import HORIZONS, Exhaustion
from kvscope_events.events import (
    AllocationFailed,
    SequenceAdded,
    SequenceFinished,
    StepCompleted,
)

EVERY_SECONDS = 5.0
"""Between two forecasts that are scored."""
ONSET_SECONDS = 60.0
"""Time without exhaustion after which the next one is an onset."""


@dataclass(slots=True)
class Forecasts:
    """Forecasts at one horizon: each forecaster's, and the outcomes."""

    horizon: int
    ours: list[float] = field(default_factory=list)
    usage: list[float] = field(default_factory=list)
    linear: dict[float, list[float]] = field(default_factory=lambda: {w: [] for w in WINDOWS})
    came: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    """Seconds since the load began, those of one run after those of another."""
    idle: list[bool] = field(default_factory=list)
    """Whether nothing ran and nothing waited."""
    silent: list[float] = field(default_factory=list)
    """The times while idle at which no forecast was made."""
    onsets: list[float] = field(default_factory=list)
    """The times at which the pool was exhausted after a minute or more without."""

    def since(self, seconds: float) -> "Forecasts":
        """Those made from a time on."""
        return self._part(seconds, math.inf)

    def until(self, seconds: float) -> "Forecasts":
        """Those made before a time."""
        return self._part(0.0, seconds)

    def while_idle(self) -> "Forecasts":
        """Those made while nothing ran and nothing waited; without rivals."""
        at = [index for index, idle in enumerate(self.idle) if idle]
        result = Forecasts(self.horizon)
        result.ours = [self.ours[index] for index in at]
        result.came = [self.came[index] for index in at]
        result.times = [self.times[index] for index in at]
        result.silent = self.silent
        return result

    def _part(self, begins: float, ends: float) -> "Forecasts":
        part = slice(bisect_left(self.times, begins), bisect_left(self.times, ends))
        linear = {window: values[part] for window, values in self.linear.items()}
        lists = (self.ours[part], self.usage[part], linear, self.came[part], self.times[part])
        silent = [at for at in self.silent if begins <= at < ends]
        onsets = [at for at in self.onsets if begins <= at < ends]
        return Forecasts(self.horizon, *lists, self.idle[part], silent, onsets)

    def warnings(self, said: Sequence[float], above: float) -> tuple[float, float] | None:
        """Forecasts above a threshold: the share that came true, and their share of all that came.

        None: no such forecast.
        """
        warned = [came for p, came in zip(said, self.came, strict=True) if p > above]
        return (sum(warned) / len(warned), sum(warned) / sum(self.came)) if warned else None

    def foreseen(self, above: float, ahead: float) -> int:
        """Onsets for which the forecast was above a threshold this many seconds before."""
        count = 0
        for onset in self.onsets:
            index = bisect_right(self.times, onset - ahead) - 1
            is_asked = index >= 0 and self.times[index] > onset - ahead - EVERY_SECONDS
            count += is_asked and self.ours[index] > above
        return count

    def false_alarms(self, above: float) -> int:
        """Times that the forecast rose above a threshold, and nothing came within the horizon."""
        rises = zip(self.ours, self.ours[1:], self.came[1:], strict=False)
        return sum(before <= above < now and not came for before, now, came in rises)

    def error(self) -> float:
        """Mean distance between what was said and what came, over deciles by their forecasts."""
        parts = deciles(self.ours, self)
        return sum(d.count * abs(d.said - d.came) for d in parts) / len(self.came)

    def brier(self) -> dict[str, float]:
        """Mean squared errors; `base` is that of always forecasting the base rate."""
        rate = sum(self.came) / len(self.came)
        return {
            "ours": brier(self.ours, self.came),
            "usage": brier(self.usage, self.came),
            "linear": min(brier(values, self.came) for values in self.linear.values()),
            "base": rate * (1 - rate),
        }


def joined(parts: Sequence[Forecasts]) -> Forecasts:
    """Forecasts of several runs as one, each at times of its own."""
    whole = Forecasts(parts[0].horizon)
    start = 0.0
    for part in parts:
        whole.ours += part.ours
        whole.usage += part.usage
        whole.came += part.came
        whole.idle += part.idle
        for window, values in part.linear.items():
            whole.linear[window] += values
        whole.times += [start + at for at in part.times]
        whole.silent += [start + at for at in part.silent]
        whole.onsets += [start + at for at in part.onsets]
        last = max((*whole.times[-1:], *whole.silent[-1:], *whole.onsets[-1:]), default=0.0)
        start = math.ceil((last + 1) / part.horizon) * part.horizon
    return whole


def brier(said: Sequence[float], came: Sequence[float]) -> float:
    return sum((p - y) ** 2 for p, y in zip(said, came, strict=True)) / len(came)


@dataclass(frozen=True, slots=True)
class Decile:
    """Forecasts of about one probability."""

    low: float
    count: int
    windows: int
    """Stretches of a horizon's length that they lie in: those of one stretch share its outcome."""
    said: float
    came: float

    @property
    def is_off(self) -> bool:
        """More than five points from calibrated, beyond chance (Wilson, 95 %, by windows)."""
        low, high = _interval(self.came, self.windows)
        return self.said < low - 0.05 or self.said > high + 0.05


def _interval(share: float, count: int) -> tuple[float, float]:
    z = 1.96
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    half /= 1 + z * z / count
    return centre - half, centre + half


def deciles(said: Sequence[float], forecasts: Forecasts) -> list[Decile]:
    """Those that hold any."""
    result = []
    for index in range(10):
        inside = [i for i, p in enumerate(said) if min(9, int(p * 10)) == index]
        if inside:
            result.append(
                Decile(
                    index / 10,
                    len(inside),
                    len({int(forecasts.times[i] / forecasts.horizon) for i in inside}),
                    sum(said[i] for i in inside) / len(inside),
                    sum(forecasts.came[i] for i in inside) / len(inside),
                )
            )
    return result


class _Asked(NamedTuple):
    """A forecast, and what the rivals and the scores need of its moment."""

    at: float
    usage: float
    idle: bool
    probabilities: dict[int, float]


def play(load: Load, seed: int, seconds: float) -> list[Forecasts]:
    """One run of a load from an empty engine; a result for each horizon.

    Forecasts are asked for by the clock, whether or not the engine has anything to say.
    """
    simulator = Simulator(load.machine)
    fold = Exhaustion()
    scrapes = Scrapes()
    exhausted: list[float] = []
    asked: list[_Asked] = []
    open_sequences: set[int] = set()
    due = last = usage = 0.0
    for batch in simulator.play(load.calls(Random(seed), seconds), seconds):
        now = batch.time_ns / SECOND
        while due < now:  # what is known before this batch
            scrapes.offer(due, usage)
            probabilities = fold.probabilities(due - last)
            asked.append(_Asked(due, usage, not open_sequences, probabilities))
            due += EVERY_SECONDS
        fold.on_batch(batch)
        last = now
        for event in batch.events:
            if type(event) is AllocationFailed:
                exhausted.append(now)
            elif type(event) is SequenceAdded:
                open_sequences.add(event.sequence)
            elif type(event) is SequenceFinished:
                open_sequences.discard(event.sequence)
            elif type(event) is StepCompleted:
                usage = event.active_blocks / load.machine.num_blocks
        if not open_sequences:
            usage = 0.0
    return [_of_horizon(horizon, asked, exhausted, scrapes, seconds) for horizon in HORIZONS]


def _onsets(exhausted: Sequence[float]) -> list[float]:
    earlier = [-math.inf, *exhausted]
    return [
        at for at, before in zip(exhausted, earlier, strict=False) if at - before > ONSET_SECONDS
    ]


def _of_horizon(
    horizon: int,
    asked: Iterable[_Asked],
    exhausted: list[float],
    scrapes: Scrapes,
    seconds: float,
) -> Forecasts:
    result = Forecasts(horizon, onsets=_onsets(exhausted))
    for now, usage, idle, probabilities in asked:
        if now + horizon > seconds:
            break
        if horizon not in probabilities:
            if idle:
                result.silent.append(now)
            continue
        after = bisect_right(exhausted, now)
        result.times.append(now)
        result.idle.append(idle)
        result.ours.append(probabilities[horizon])
        result.usage.append(usage_above(usage))
        for window, values in result.linear.items():
            values.append(scrapes.full_by(now, window, horizon))
        result.came.append(float(after < len(exhausted) and exhausted[after] <= now + horizon))
    return result
