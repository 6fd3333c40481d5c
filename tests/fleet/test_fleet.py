"""A small fleet for some hours: healthy servers are silent, and each fault is reported once."""

import os
import re
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.alerts import failures
from tests.alerts.timeline import STEP_SECONDS, firing
from tests.alerts.tools import promtools
from tests.fakes.nvml import compiler
from tools.chaos.fleet.blocks import write_blocks
from tools.chaos.fleet.day import DAY_SECONDS, Clock
from tools.chaos.fleet.faults import FAULTS, Fault
from tools.chaos.fleet.fleet import healthy, read_by_rules, struck, write
from tools.chaos.fleet.outcome import Outcome, outcomes, timeline
from tools.chaos.fleet.play import Firing, play, spans
from tools.chaos.fleet.recording import (
    CLOSED,
    HALF_SPEED,
    LEVELS,
    LOADING,
    Library,
    record_all,
)

pytestmark = [
    pytest.mark.waits,
    pytest.mark.prometheus,
    pytest.mark.promtool,
    pytest.mark.alertmanager,
    pytest.mark.slow,
    pytest.mark.timeout(400),
]

SERVERS, HOURS, STEP = 10, 4, 60
"""Four replicas of each of two models: what is odd is odd among three others."""
END = 3 * 3600
"""Seconds after midnight, UTC. The load follows the hour: at its peak, a minute of recordings,
which is all there is here, may hold more late prompts than the day has on average."""
STRUCK = [
    replace(fault, minutes=30)
    for fault in FAULTS
    if fault.name in {"dead replica", "half speed", "failing replica"}
]
FASTER = 400.0


def say(_text: str) -> None:
    """Ignore progress."""


class Played(NamedTuple):
    """The alerts fired in each cluster, and the outcome of each fault."""

    healthy: list[Firing]
    outcomes: dict[str, Outcome]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    if compiler() is None and os.environ.get("CI") != "true":
        pytest.skip("no C compiler on PATH")
    folder, tool = tmp_path_factory.mktemp("fleet"), promtools()[0]
    pages = record_all(folder, 1, say, read_by_rules(), (*LEVELS, HALF_SPEED, CLOSED))
    end = (int(time.time()) - END) // DAY_SECONDS * DAY_SECONDS + END
    clock = Clock(end=end, step=STEP, count=HOURS * 3600 // STEP)
    days, when = struck(SERVERS, clock, pages, STRUCK)
    write([*healthy(SERVERS, clock, pages, "healthy"), *days], folder / "data", tool)
    fired = play(folder, folder / "data", clock, tool, say)
    told = [one for one in fired if one.cluster != "healthy"]
    found = outcomes(folder, STRUCK, when, clock, told, faster=FASTER)
    return Played(
        [one for one in fired if one.cluster == "healthy"],
        {outcome.fault.name: outcome for outcome in found},
    )


@pytest.mark.nightly
def test_healthy_servers_are_silent_under_load_lost_scrapes_and_restarts(played: Played) -> None:
    assert played.healthy == []


@pytest.mark.nightly
@pytest.mark.parametrize("fault", STRUCK, ids=lambda fault: fault.name)
def test_a_fault_is_told_by_its_alert(played: Played, fault: Fault) -> None:
    outcome = played.outcomes[fault.name]
    assert outcome.alert == fault.alert
    assert outcome.seconds is not None
    assert 0 < outcome.seconds <= 20 * 60


@pytest.mark.nightly
def test_a_replica_that_failed_and_is_well_again_calls_nobody_twice(played: Played) -> None:
    """Its model's budget burns as well, and was silenced only while the replica failed."""
    outcome = played.outcomes["failing replica"]
    critical = [message for message in outcome.messages if message.notices[0].receiver == "on-call"]
    assert "KvscopeErrorBudgetBurns" in outcome.others
    assert [message.notices[0].labels["alertname"] for message in critical] == [outcome.alert]


def test_the_usual_events_of_fifty_servers_fit_into_the_hour_whose_costs_are_timed() -> None:
    places = {name: range(1) for name in (*LEVELS, LOADING, CLOSED)}
    clock = Clock(end=3600, step=5, count=720)
    days = healthy(50, clock, Library({}, {}, {}, places))
    pulled = [day for day in days if day.place.model == "mistral"]
    assert len(pulled) == 10
    assert all(len(day.starts) == 2 and max(day.starts) < clock.count for day in pulled)


@pytest.mark.nightly
def test_rules_over_the_past_give_what_promtool_gives(tmp_path: Path) -> None:
    """Records, `for` and `keep_firing_for` included, of a situation from its first minute on."""
    situation = failures.sick_card()
    (expected,) = firing(tmp_path, [situation], promtools()[0]).values()
    clock = Clock(
        end=(situation.steps - 1) * STEP_SECONDS, step=STEP_SECONDS, count=situation.steps
    )
    data = tmp_path / "data"
    series = []
    for selector, values in situation.series.items():
        name, _, labels = selector.partition("{")
        pairs = tuple(re.findall(r'(\w+)="([^"]*)"', labels))
        series.append((name, pairs, np.array([np.nan if v is None else v for v in values])))
    write_blocks(series, clock.times, data, promtools()[0])
    found = timeline(play(tmp_path, data, clock, promtools()[0], say))
    assert len(expected[-1][1]) > 5, "there is something to compare"
    assert found[: len(expected)] == expected


@pytest.mark.parametrize(
    ("true", "found"),
    [
        (range(0, 600, 60), [(120, 720)]),
        ([0, 60, 180, 240], []),
        ([60, 120, 180, 300], [(180, 480)]),
        ([60, 120, 180, 480, 540, 600], [(180, 360), (600, 780)]),
    ],
    ids=["holds", "not long enough", "a gap is kept", "two"],
)
def test_firing_follows_for_and_keep(true: Iterable[int], found: list[tuple[int, int]]) -> None:
    assert list(spans(set(true), 0, 1200, 60, wait=120, keep=120)) == found
