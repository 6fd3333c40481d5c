"""The shipped rules over the past: a real Prometheus answers, faster than time.

What it records is written back as blocks, level by level, as its rule manager would have done at
the time. `for` and `keep_firing_for` are applied here, as the rule manager applies them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kvscope_alerts.objectives import Objectives
from kvscope_alerts.rules import mapping
from kvscope_alerts.timing import seconds_of
from tests.alerts.tools import names_in
from tools.chaos.fleet.blocks import Series, write_blocks
from tools.chaos.fleet.day import Clock
from tools.chaos.fleet.storage import Labels, Storage, storage
from tools.chaos.frame import Say

TO_ZERO = "night"
"""The model that scales to zero."""
OBJECTIVES = Objectives.parse(["qwen=2.5", "mistral=2.5"], to_zero=[TO_ZERO])


@dataclass(frozen=True, slots=True)
class Firing:
    """An alert of some labels, from when to when; Unix, in seconds."""

    labels: Labels
    since: int
    until: int

    @property
    def name(self) -> str:
        return dict(self.labels)["alertname"]

    @property
    def cluster(self) -> str:
        return dict(self.labels).get("cluster", "")

    @property
    def severity(self) -> str:
        return dict(self.labels)["severity"]


@dataclass(frozen=True, slots=True)
class _Rule:
    """One of the file, with the seconds between its evaluations."""

    body: dict[str, Any]
    every: int


def play(folder: Path, data: Path, clock: Clock, tool: str, say: Say) -> list[Firing]:
    """Everything that fired, in the order of its beginning. data: the blocks, which grow."""
    _record_past(folder, data, clock, tool, say)
    fired: list[Firing] = []
    with storage(folder, data, _lookback(clock)) as prometheus:
        for rule in _rules(clock.step):
            if "alert" in rule.body and rule.body["labels"]["severity"] != "none":
                fired += _fired(prometheus, rule, clock)
    return sorted(fired, key=lambda firing: (firing.since, firing.labels))


def _record_past(folder: Path, data: Path, clock: Clock, tool: str, say: Say) -> None:
    """Add to the blocks what the shipped rules would have recorded."""
    recording = [rule for rule in _rules(clock.step) if "record" in rule.body]
    for number, level in enumerate(_levels(recording)):
        with storage(folder, data, _lookback(clock)) as prometheus:
            say(f"recording, level {number}: {len(level)} rules")
            for every in {rule.every for rule in level}:
                moments = _moments(clock, every)
                chosen = [rule for rule in level if rule.every == every]
                write_blocks(_recorded(prometheus, chosen, moments), moments, data, tool)


def _lookback(clock: Clock) -> str:
    """Blocks made of text have no marks of staleness: what is missing is to be gone at once."""
    return f"--query.lookback-delta={clock.step * 3 // 2}s"


def rule_groups() -> list[Any]:
    """The groups of the rule file of an installation: one of its models scales to zero, and two
    have limits of their own, which page."""
    groups: Any = mapping(objectives=OBJECTIVES)["groups"]
    return list(groups)


def _rules(step: int) -> list[_Rule]:
    groups = rule_groups()
    return [
        _Rule(rule, max(step, seconds_of(group.get("interval", "0s"))))
        for group in groups
        for rule in group["rules"]
    ]


def _levels(rules: list[_Rule]) -> Iterator[list[_Rule]]:
    """Recording rules, those first that read no other that is still to come."""
    left = rules
    while left:
        names = {rule.body["record"] for rule in left}
        ready = [rule for rule in left if not names & names_in(rule.body["expr"])]
        assert ready, f"they read each other: {sorted(names)}"
        yield ready
        left = [rule for rule in left if rule not in ready]


def _moments(clock: Clock, every: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """When rules of that interval are evaluated: at multiples of it."""
    first = -(-int(clock.times[0]) // every) * every
    return np.arange(first, clock.end + 1, every, dtype=np.float64)


def _recorded(
    prometheus: Storage, rules: Iterable[_Rule], moments: np.ndarray[Any, np.dtype[np.float64]]
) -> Iterator[Series]:
    first, last = int(moments[0]), int(moments[-1])
    for rule in rules:
        found = prometheus.over(rule.body["expr"], first, last, rule.every)
        for labels, samples in found.items():
            values = np.full(len(moments), np.nan)
            for moment, value in samples:
                values[(moment - first) // rule.every] = value
            kept = tuple(pair for pair in labels if pair[0] != "__name__")
            yield rule.body["record"], kept, values


def _fired(prometheus: Storage, rule: _Rule, clock: Clock) -> Iterator[Firing]:
    moments = _moments(clock, rule.every)
    first, last = int(moments[0]), int(moments[-1])
    wait = seconds_of(rule.body.get("for", "0s"))
    keep = seconds_of(rule.body.get("keep_firing_for", "0s"))
    found = prometheus.over(rule.body["expr"], first, last, rule.every)
    for labels, samples in found.items():
        kept = {label: text for label, text in labels if label != "__name__"}
        whole = kept | rule.body["labels"] | {"alertname": rule.body["alert"]}
        true = {moment for moment, _ in samples}
        for since, until in spans(true, first, last, rule.every, wait, keep):
            yield Firing(tuple(sorted(whole.items())), since, until)


def spans(
    true: set[int], first: int, last: int, every: int, wait: int, keep: int
) -> Iterator[tuple[int, int]]:
    """From when to when it fires, whose expression holds at those moments.

    As Prometheus has it: pending until it has held for `wait`, firing until it has not held for
    `keep`; what still fires at `last` ends then.
    """
    active: int | None = None
    firing: int | None = None
    lapsed: int | None = None
    for moment in range(first, last + 1, every):
        if moment in true:
            lapsed = None
            active = moment if active is None else active
            if firing is None and moment - active >= wait:
                firing = moment
        elif firing is not None:
            lapsed = moment if lapsed is None else lapsed
            if moment - lapsed >= keep:
                yield firing, moment
                active = firing = lapsed = None
        else:
            active = None
    if firing is not None:
        yield firing, last
