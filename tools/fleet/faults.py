"""Faults of a fleet's servers, each at its own hour, and the expected alerts."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tests.fakes.nvml import MIB
from tests.fakes.nvml.states import UUID
from tools.fleet.day import Day
from tools.fleet.recordings import CROWDED, HALF_SPEED, STORM, THROTTLED

LEAK_BYTES = 100 * MIB
"""That a neighbour takes more each minute."""
_FIRST_TOKENS = "kvscope_time_to_first_token_seconds"
_TOKENS = "kvscope_inter_token_latency_seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One of a day. Nothing else happens until the next."""

    name: str
    what: str
    alert: str | None
    """Alert whose message comes first; None: no message."""
    strike: Callable[[list[Day], slice], None]
    """Changes the days of the fleet, in which it may add some, for those pages."""
    minutes: float = 60


def _of(days: list[Day], model: str) -> list[Day]:
    return [day for day in days if day.place.model == model]


def _dead(days: list[Day], when: slice) -> None:
    victim = days[0]
    victim.up[when] = 0
    victim.restart(when.stop, victim.clock.at(0.1))


def _half_speed(days: list[Day], when: slice) -> None:
    days[1].play(HALF_SPEED, when)


def _hot_card(days: list[Day], when: slice) -> None:
    days[2].play(THROTTLED, when)
    for (name, labels), values in days[2].gauges.items():
        own = dict(labels)
        hot = own.get("uuid") == UUID.format(3) and own.get("reason") == "hw_thermal"
        if name == "kvscope_gpu_clocks_event_active" and hot:
            values[when] = 1


def _leak(days: list[Day], when: slice) -> None:
    """It ends when the neighbour is ended."""
    pages = when.stop - when.start
    grown = LEAK_BYTES * days[3].clock.step / 60 * np.arange(1, pages + 1)
    for (name, labels), values in days[3].gauges.items():
        own = dict(labels)
        if own.get("uuid") != UUID.format(0):
            continue
        if name == "kvscope_gpu_process_memory_bytes" and own["owner"] == "other":
            values[when] += grown
        elif name == "kvscope_gpu_memory_headroom_bytes":
            values[when] -= grown


def _failing(days: list[Day], when: slice) -> None:
    """It fails every request at once."""
    victim = days[5]
    ended = {
        dict(labels)["reason"]: growth
        for (name, labels), growth in victim.counters.items()
        if name == "kvscope_requests_finished_total"
    }
    ended["error"][when] = ended["length"][when]
    ended["length"][when] = 0
    for (name, _), growth in victim.counters.items():
        if name.startswith((_FIRST_TOKENS, _TOKENS)) or name == "kvscope_step_tokens_total":
            growth[when] = 0


def _slow_roll_out(days: list[Day], when: slice) -> None:
    """All pods of a model, five at a time, each of which loads for twenty minutes."""
    old = _of(days, "qwen")
    loads = days[0].clock.at(1 / 3)
    for number, day in enumerate(old):
        at = when.start + number // 5 * (loads + days[0].clock.at(0.05))
        _replaced(days, day, at).restart(at, loads)


def _stuck_roll_out(days: list[Day], when: slice) -> None:
    """Five pods are replaced by ones that do not start, until the version is rolled back."""
    for day in _of(days, "llama")[-5:]:
        heir = _replaced(days, day, when.start)
        heir.up[when] = 0
        heir.restart(when.stop, heir.clock.at(0.1))


def _storm(days: list[Day], when: slice) -> None:
    for day in _of(days, "mistral"):
        day.play(STORM, when)


def _full_pools(days: list[Day], when: slice) -> None:
    for day in _of(days, "qwen"):
        day.play(CROWDED, when)


def _replaced(days: list[Day], old: Day, at: int) -> Day:
    """The pod that comes in its place, on the same machine."""
    name = f"{old.place.pod}-new"
    heir = Day(replace(old.place, pod=name), old.clock, old.library)
    heir.up[:at] = np.nan
    heir.up[at:] = old.up[at:]
    old.up[at:] = np.nan
    days.append(heir)
    return heir


FAULTS = (
    Fault(
        name="dead replica",
        what="one server does not answer",
        alert="KvscopeTargetDown",
        strike=_dead,
    ),
    Fault(
        name="half speed",
        what="decode of one replica takes twice as long",
        alert="KvscopeItlOutlier",
        strike=_half_speed,
    ),
    Fault(
        name="hot card",
        what="one card of eight throttles, steps take 1.3 times as long",
        alert="KvscopeGpuSlowedDown",
        strike=_hot_card,
    ),
    Fault(
        name="leaking neighbour",
        what=f"a foreign process takes {LEAK_BYTES // MIB} MiB more of one card each minute",
        alert="KvscopeForeignProcessGrew",
        strike=_leak,
    ),
    Fault(
        name="slow roll-out",
        what="all pods of a model are replaced, five at a time; each loads for 20 min",
        alert=None,
        strike=_slow_roll_out,
        minutes=100,
    ),
    Fault(
        name="stuck roll-out",
        what="five new pods do not start",
        alert="KvscopeTargetNeverUp",
        strike=_stuck_roll_out,
    ),
    Fault(
        name="failing replica",
        what="one replica fails every request",
        alert="KvscopeErrorOutlier",
        strike=_failing,
    ),
    Fault(
        name="full pools",
        what="pools of all replicas of a model are too small for their load",
        alert="KvscopeTtftBudgetBurnsFast",
        strike=_full_pools,
    ),
    Fault(
        name="retries storm",
        what="twice the load on all replicas of a model, refused calls come again after 2 s",
        alert="KvscopeErrorBudgetBurnsFast",
        strike=_storm,
    ),
)
