"""A fleet's day, healthy or with faults laid in, and the blocks of it."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.alerts.tools import names_in
from tools.chaos.fleet.blocks import write_blocks
from tools.chaos.fleet.day import Clock, Day, Place
from tools.chaos.fleet.faults import LONE, Fault
from tools.chaos.fleet.play import TO_ZERO, rule_groups
from tools.chaos.fleet.recording import CLOSED, Key, Library

MODELS = ("llama", "llama", "qwen", "qwen", "mistral")
"""Models of servers in turn."""
LOST_SHARE = 1 / 2000
"""Share of a healthy server's scrapes: they come too late or not at all."""
LOADING_MINUTES = 4
BATCH = "batch"
"""A model that closed-loop clients ask all through the night."""
FEW = (LONE, BATCH, BATCH, TO_ZERO, TO_ZERO)
"""Servers besides: models with one or two replicas."""
ROLL_OUT_MINUTES = 15
"""Between two pods of a StatefulSet, or less where the clock covers only an hour."""
PULL_MINUTES = 4
"""In which a pod of a StatefulSet that is replaced has an address and no page yet."""


def calm(servers: int, clock: Clock, library: Library, cluster: str) -> list[Day]:
    """Heavy load that rises and falls, and nothing else."""
    models = [*(MODELS[number % len(MODELS)] for number in range(servers)), *FEW]
    return [
        Day(Place(number=n, model=model, pod=f"{model}-{n}", cluster=cluster), clock, library)
        for n, model in enumerate(models)
    ]


def healthy(servers: int, clock: Clock, library: Library, cluster: str = "healthy") -> list[Day]:
    """Now and then a scrape is lost, and a server restarted."""
    days = calm(servers, clock, library, cluster)
    draw = np.random.default_rng(servers)
    for day in days:
        _usual(day)
    pods = [day for day in days if day.place.model == "mistral"]
    apart = min(ROLL_OUT_MINUTES / 60, clock.hours * 0.2 / len(pods))
    for number, day in enumerate(pods):
        _replaced_in_place(day, clock.at(clock.hours * 0.3 + number * apart))
    for day in days:
        day.up[draw.random(clock.count) < LOST_SHARE] = 0
        day.restart(int(draw.integers(1, clock.count)), clock.at(LOADING_MINUTES / 60))
    pause = clock.at(clock.hours * 0.6)
    for day in days:  # Prometheus itself is restarted, and replays its log
        day.up[pause : pause + clock.at(0.05)] = np.nan
    return days


def _usual(day: Day) -> None:
    """Usual changes: load of some models each night, or none for hours."""
    hours = day.clock.hours
    if day.place.model == BATCH:
        day.play(CLOSED, slice(day.clock.at(hours * 0.1), day.clock.at(hours * 0.3)))
    elif day.place.model == TO_ZERO:
        for share in (0.2, 0.7):
            begin, end = day.clock.at(hours * share), day.clock.at(hours * (share + 0.15))
            day.up[begin:end] = np.nan
            day.restart(end, day.clock.at(LOADING_MINUTES / 60))


def _replaced_in_place(day: Day, at: int) -> None:
    """A roll-out of a StatefulSet: the new pod has the name of the old one."""
    answers = at + 1 + day.clock.at(PULL_MINUTES / 60)
    day.up[at] = np.nan
    day.up[at + 1 : answers] = 0
    day.restart(answers, day.clock.at(LOADING_MINUTES / 60))


def struck(
    servers: int,
    clock: Clock,
    library: Library,
    faults: Sequence[Fault],
    cluster: str = "struck",
) -> tuple[list[Day], list[slice]]:
    """A calm day with those faults at equal intervals, and the pages of each."""
    days = calm(servers, clock, library, cluster)
    apart = clock.count // (len(faults) + 1)
    pages = []
    for number, fault in enumerate(faults):
        start = (number + 1) * apart
        when = slice(start, start + clock.at(fault.minutes / 60))
        fault.strike(days, when)
        pages.append(when)
    return days, pages


class Wanted:
    """Whether a series is read by any of the expressions."""

    def __init__(self, expressions: Sequence[str]) -> None:
        self._names = {name for expr in expressions for name in names_in(expr)}
        self._bounds = {bound for e in expressions for bound in re.findall(r'le="([^"]+)"', e)}
        bare = [re.sub(r"_bucket\{[^}]*\ble=", "", expr) for expr in expressions]
        self._whole = {name for expr in bare for name in re.findall(r"\w+_bucket", expr)}

    def __call__(self, key: Key) -> bool:
        name, labels = key
        if not name.endswith("_bucket") or name in self._whole:
            return name in self._names
        return name in self._names and dict(labels)["le"] in self._bounds


def read_by_rules() -> Wanted:
    """Series that the shipped rules read."""
    return Wanted([rule["expr"] for group in rule_groups() for rule in group["rules"]])


def write(days: Sequence[Day], data: Path, tool: str) -> int:
    """The blocks of these days; returns the number of samples."""
    lines = (line for day in days for line in day.lines())
    return write_blocks(lines, days[0].clock.times, data, tool)
