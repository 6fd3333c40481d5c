"""A fleet's day, healthy or with faults laid in, and the blocks of it."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tests.alerts.tools import RULE_FILE, names_in
from tests.fleet.blocks import write_blocks
from tests.fleet.day import Clock, Day, Place
from tests.fleet.faults import Fault
from tests.fleet.library import Library
from tests.fleet.recording import Key

MODELS = ("llama", "llama", "qwen", "qwen", "mistral")
"""Of servers in turn."""
LOST_SHARE = 1 / 2000
"""Of the scrapes of a healthy server: they come too late or not at all."""
LOADING_MINUTES = 4


def calm(servers: int, clock: Clock, library: Library, cluster: str) -> list[Day]:
    """Heavy load that rises and falls, and nothing else."""
    models = [MODELS[number % len(MODELS)] for number in range(servers)]
    return [
        Day(Place(number=n, model=model, pod=f"{model}-{n}", cluster=cluster), clock, library)
        for n, model in enumerate(models)
    ]


def healthy(servers: int, clock: Clock, library: Library, cluster: str = "healthy") -> list[Day]:
    """Now and then a scrape is lost, and a server restarted."""
    days = calm(servers, clock, library, cluster)
    draw = np.random.default_rng(servers)
    for day in days:
        day.up[draw.random(clock.count) < LOST_SHARE] = 0
        day.restart(int(draw.integers(1, clock.count)), clock.at(LOADING_MINUTES / 60))
    return days


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
    groups: list[Any] = yaml.safe_load(RULE_FILE.read_text())["groups"]
    return Wanted([rule["expr"] for group in groups for rule in group["rules"]])


def write(days: Sequence[Day], data: Path, tool: str) -> int:
    """The blocks of these days; returns the number of samples."""
    lines = (line for day in days for line in day.lines())
    return write_blocks(lines, days[0].clock.times, data, tool)
