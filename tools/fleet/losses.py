"""Faults of single servers and models that no load shows: starts that hang, ends, lone cards."""

from collections.abc import Iterable

import numpy as np

from tests.fakes.nvml.states import UUID
from tools.fleet.day import Day
from tools.fleet.faults import Fault
from tools.fleet.recording import Key

LONE = "solo"
"""The model that has one replica."""
_STATE = "kvscope_server_state"
_SOURCE = "kvscope_source_up"
_FIRST_TOKEN = "kvscope_time_to_first_token_seconds"
_XID = "kvscope_gpu_xid_last_age_seconds"


def _named(table: Iterable[Key], name: str, **labels: str) -> list[Key]:
    return [key for key in table if key[0] == name and labels.items() <= dict(key[1]).items()]


def _become(day: Day, state: str, when: slice) -> None:
    """The exporter lives beside the server, and says what it hears of it."""
    for key in _named(day.gauges, _STATE):
        day.gauges[key][when] = dict(key[1])["state"] == state
    for key, values in day.gauges.items():
        if key[0] == _SOURCE:
            values[when] = state in ("ready", "loading")
        elif key[0] != _STATE:
            values[when] = np.nan
    for growth in day.counters.values():
        growth[when] = 0
    for ages in day.ages.values():
        ages[when] = np.nan


def _lone(days: list[Day]) -> Day:
    return next(day for day in days if day.place.model == LONE)


def _ends(days: list[Day], when: slice) -> None:
    _become(days[0], "gone", when)


def _lone_ends(days: list[Day], when: slice) -> None:
    _become(_lone(days), "gone", when)


def _lone_down(days: list[Day], when: slice) -> None:
    lone = _lone(days)
    lone.up[when] = 0
    lone.restart(when.stop, lone.clock.at(0.1))


def _hangs(days: list[Day], when: slice) -> None:
    _become(days[1], "loading", when)


def _deleted(days: list[Day], when: slice) -> None:
    for day in days:
        if day.place.model == "mistral":
            day.up[when] = np.nan
            day.restart(when.stop, day.clock.at(0.1))


def _fewer(days: list[Day], when: slice) -> None:
    days[0].up[when] = np.nan
    days[0].restart(when.stop, days[0].clock.at(0.1))


def _shunned(days: list[Day], when: slice) -> None:
    """The router forgets it."""
    for growth in days[2].counters.values():
        growth[when] = 0
    for key in _named(days[2].gauges, "kvscope_requests"):
        days[2].gauges[key][when] = 0


def _smaller(days: list[Day], when: slice) -> None:
    for key in _named(days[3].gauges, "kvscope_kv_usable_blocks"):
        days[3].gauges[key][when] *= 0.7


def _card(day: Day, when: slice) -> None:
    labels = tuple(sorted({"gpu": "3", "uuid": UUID.format(3), "xid": "79"}.items()))
    ages = np.full(day.clock.count, np.nan)
    ages[when] = day.clock.step * np.arange(1, when.stop - when.start + 1)
    day.ages[_XID, labels] = ages


def _sick_card(days: list[Day], when: slice) -> None:
    _card(days[0], when)


def _lone_card(days: list[Day], when: slice) -> None:
    _card(_lone(days), when)


def _seldom(day: Day, when: slice, minutes: float, *, late: bool) -> None:
    """No requests except a prompt in this many minutes."""
    apart = max(1, round(minutes * 60 / day.clock.step))
    for key, growth in day.counters.items():
        growth[when] = 0
        of_all = key[0] == f"{_FIRST_TOKEN}_count" or dict(key[1]).get("le") == "+Inf"
        if key[0].startswith(_FIRST_TOKEN) and (of_all or not late):
            growth[when.start : when.stop : apart] = 1


def _idle_night(days: list[Day], when: slice) -> None:
    """Long prompts, each of which is late."""
    _seldom(_lone(days), when, 5, late=True)


def _few_late(days: list[Day], when: slice) -> None:
    """It has been quiet before, and each prompt was answered in time."""
    lone = _lone(days)
    quiet = slice(max(0, when.start - lone.clock.at(0.75)), when.start)
    _seldom(lone, quiet, 3, late=False)
    _seldom(lone, when, 3, late=True)


def _failing_api(days: list[Day], when: slice) -> None:
    """Nothing reaches its engine any more."""
    victim = days[4]
    engine = next(dict(labels) for name, labels in victim.gauges if name == "kvscope_requests")
    for growth in victim.counters.values():
        growth[when] = 0
    for key in _named(victim.gauges, "kvscope_requests"):
        victim.gauges[key][when] = 0
    for status, answers in (("2xx", 180.0), ("5xx", 0.0)):
        labels = tuple(sorted({**engine, "status": status}.items()))
        key = "kvscope_api_responses_total", tuple(each for each in labels if each[0] != "state")
        victim.counters[key] = np.full(victim.clock.count, answers * victim.clock.step / 60)
        victim.counters[key][when] = (180.0 - answers) * victim.clock.step / 60


def _starved(days: list[Day], when: slice) -> None:
    """Those that come later overtake it."""
    waited = days[5].clock.step * np.arange(1, when.stop - when.start + 1)
    for key in _named(days[5].gauges, "kvscope_requests_oldest_wait_seconds"):
        days[5].gauges[key][when] = waited


LOSSES = (
    Fault(
        name="ends",
        what="one replica of ten ends in an orderly way; its exporter goes on",
        alert="KvscopeServerGone",
        strike=_ends,
    ),
    Fault(
        name="lone ends",
        what="the only replica of a model does",
        alert="KvscopeServerGone",
        strike=_lone_ends,
    ),
    Fault(
        name="lone down",
        what="the machine of the only replica of a model does not answer",
        alert="KvscopeTargetDown",
        strike=_lone_down,
    ),
    Fault(
        name="hangs",
        what="one replica is restarted and hangs while it loads",
        alert="KvscopeServerNotReady",
        strike=_hangs,
    ),
    Fault(
        name="deleted",
        what="all replicas of a model are deleted",
        alert="KvscopeModelGone",
        strike=_deleted,
    ),
    Fault(
        name="fewer",
        what="one replica of ten is deleted",
        alert="KvscopeEnginesFewer",
        strike=_fewer,
    ),
    Fault(
        name="shunned",
        what="the router sends one replica nothing",
        alert="KvscopeReplicaIdle",
        strike=_shunned,
    ),
    Fault(
        name="smaller",
        what="one replica comes up with 70 % of the blocks",
        alert="KvscopePoolSmaller",
        strike=_smaller,
    ),
    Fault(
        name="sick card",
        what="XID 79 on one card of one replica of ten, which serves on",
        alert="KvscopeXidCritical",
        strike=_sick_card,
    ),
    Fault(
        name="lone card",
        what="the same of the only replica of a model",
        alert="KvscopeXidCritical",
        strike=_lone_card,
    ),
    Fault(
        name="idle night",
        what="a model falls idle: a prompt each five minutes, and each is late",
        alert=None,
        strike=_idle_night,
    ),
    Fault(
        name="failing API",
        what="the API server of one replica of ten answers every request with 5xx",
        alert="KvscopeServerFails",
        strike=_failing_api,
    ),
    Fault(
        name="few late",
        what="a quiet model: a prompt each three minutes, and each is late from then on",
        alert="KvscopeTtftBudgetBurnsFast",
        strike=_few_late,
    ),
    Fault(
        name="starved",
        what="one request waits, and the engine serves those that come later",
        alert="KvscopeRequestStarved",
        strike=_starved,
    ),
)
