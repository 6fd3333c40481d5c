"""Faults of a fleet's servers, each at its own hour, and the expected alerts."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tests.fakes.nvml import MIB
from tests.fakes.nvml.states import UUID
from tools.chaos.fleet.day import Day
from tools.chaos.fleet.recording import CROWDED, HALF_SPEED, STORM, THROTTLED, Floats, Key

LEAK_BYTES = 100 * MIB
"""That a neighbour takes more each minute."""
LONE = "solo"
"""The model that has one replica."""
_TTFT = "kvscope_time_to_first_token_seconds"
_STATE = "kvscope_server_state"

Strike = Callable[[list[Day], slice], None]
"""Changes the days of the fleet, in which it may add some, for those pages."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One of a day. Nothing else happens until the next."""

    name: str
    what: str
    alert: str | None
    """Alert whose message comes first; None: no message."""
    strike: Strike
    minutes: float = 60


def _of(days: list[Day], model: str) -> list[Day]:
    return [day for day in days if day.place.model == model]


def _lone(days: list[Day]) -> Day:
    return _of(days, LONE)[0]


def _series(table: dict[Key, Floats], name: str, **labels: str) -> list[Floats]:
    return [
        values
        for (other, own), values in table.items()
        if other == name and labels.items() <= dict(own).items()
    ]


def _rising(day: Day, when: slice, each: float) -> Floats:
    """By this much more on each page."""
    return each * np.arange(1, when.stop - when.start + 1)


def _plays(number: int, recording: str) -> Strike:
    return lambda days, when: days[number].play(recording, when)


def _all_play(model: str, recording: str) -> Strike:
    def strike(days: list[Day], when: slice) -> None:
        for day in _of(days, model):
            day.play(recording, when)

    return strike


def _silent(choose: Callable[[list[Day]], list[Day]], up: float) -> Strike:
    """up: 0, or NaN where the targets are gone. They are restarted afterwards."""

    def strike(days: list[Day], when: slice) -> None:
        for day in choose(days):
            day.up[when] = up
            day.restart(when.stop, day.clock.at(0.1))

    return strike


def _becomes(choose: Callable[[list[Day]], Day], state: str) -> Strike:
    """The exporter lives beside the server, and says what it hears of it."""

    def strike(days: list[Day], when: slice) -> None:
        day = choose(days)
        for (name, labels), values in day.gauges.items():
            if name == _STATE:
                values[when] = dict(labels)["state"] == state
            elif name == "kvscope_source_up":
                values[when] = state in ("ready", "loading")
            else:
                values[when] = np.nan
        for growth in day.counters.values():
            growth[when] = 0
        for ages in day.ages.values():
            ages[when] = np.nan

    return strike


def _hot_card(days: list[Day], when: slice) -> None:
    days[2].play(THROTTLED, when)
    name, uuid = "kvscope_gpu_clocks_event_active", UUID.format(3)
    for values in _series(days[2].gauges, name, uuid=uuid, reason="hw_thermal"):
        values[when] = 1


def _leak(days: list[Day], when: slice) -> None:
    """It ends when the neighbour is ended."""
    gauges, uuid = days[3].gauges, UUID.format(0)
    grown = _rising(days[3], when, LEAK_BYTES * days[3].clock.step / 60)
    for values in _series(gauges, "kvscope_gpu_process_memory_bytes", uuid=uuid, owner="other"):
        values[when] += grown
    for values in _series(gauges, "kvscope_gpu_memory_headroom_bytes", uuid=uuid):
        values[when] -= grown


def _failing(days: list[Day], when: slice) -> None:
    """It fails every request at once."""
    counters = days[5].counters
    finished = "kvscope_requests_finished_total"
    (error,), (length,) = (_series(counters, finished, reason=r) for r in ("error", "length"))
    error[when] = length[when]
    length[when] = 0
    for (name, _), growth in counters.items():
        if name.startswith((_TTFT, "kvscope_inter_token_latency_seconds", "kvscope_step_tokens")):
            growth[when] = 0


def _slow_roll_out(days: list[Day], when: slice) -> None:
    """All pods of a model, five at a time, each of which loads for twenty minutes."""
    loads = days[0].clock.at(1 / 3)
    for number, day in enumerate(_of(days, "qwen")):
        at = when.start + number // 5 * (loads + days[0].clock.at(0.05))
        _replaced(days, day, at).restart(at, loads)


def _stuck_roll_out(days: list[Day], when: slice) -> None:
    """Five pods are replaced by ones that do not start, until the version is rolled back."""
    for day in _of(days, "llama")[-5:]:
        heir = _replaced(days, day, when.start)
        heir.up[when] = 0
        heir.restart(when.stop, heir.clock.at(0.1))


def _replaced(days: list[Day], old: Day, at: int) -> Day:
    """The pod that comes in its place, on the same machine."""
    heir = Day(replace(old.place, pod=f"{old.place.pod}-new"), old.clock, old.library)
    heir.up[:at] = np.nan
    heir.up[at:] = old.up[at:]
    old.up[at:] = np.nan
    days.append(heir)
    return heir


def _smaller(days: list[Day], when: slice) -> None:
    for values in _series(days[3].gauges, "kvscope_kv_usable_blocks"):
        values[when] *= 0.7


def _sick(choose: Callable[[list[Day]], Day]) -> Strike:
    def strike(days: list[Day], when: slice) -> None:
        day = choose(days)
        labels = (("gpu", "3"), ("uuid", UUID.format(3)), ("xid", "79"))
        ages = np.full(day.clock.count, np.nan)
        ages[when] = _rising(day, when, day.clock.step)
        day.ages["kvscope_gpu_xid_last_age_seconds", labels] = ages

    return strike


def _seldom(day: Day, when: slice, minutes: float, *, late: bool) -> None:
    """No requests except a prompt in this many minutes."""
    apart = max(1, round(minutes * 60 / day.clock.step))
    for key, growth in day.counters.items():
        growth[when] = 0
        of_all = key[0] == f"{_TTFT}_count" or dict(key[1]).get("le") == "+Inf"
        if key[0].startswith(_TTFT) and (of_all or not late):
            growth[when.start : when.stop : apart] = 1


def _few_late(days: list[Day], when: slice) -> None:
    """It has been quiet before, and each prompt was answered in time."""
    lone = _lone(days)
    _seldom(lone, slice(max(0, when.start - lone.clock.at(0.75)), when.start), 3, late=False)
    _seldom(lone, when, 3, late=True)


def _failing_api(days: list[Day], when: slice) -> None:
    """Nothing reaches its engine any more."""
    victim = days[4]
    engine = next(dict(labels) for name, labels in victim.gauges if name == "kvscope_requests")
    del engine["state"]
    _idle(victim, when)
    for status, answers in (("2xx", 180.0), ("5xx", 0.0)):
        key = "kvscope_api_responses_total", tuple(sorted({**engine, "status": status}.items()))
        victim.counters[key] = np.full(victim.clock.count, answers * victim.clock.step / 60)
        victim.counters[key][when] = (180.0 - answers) * victim.clock.step / 60


def _idle(day: Day, when: slice) -> None:
    for growth in day.counters.values():
        growth[when] = 0
    for values in _series(day.gauges, "kvscope_requests"):
        values[when] = 0


def _starved(days: list[Day], when: slice) -> None:
    """Those that come later overtake it."""
    for values in _series(days[5].gauges, "kvscope_requests_oldest_wait_seconds"):
        values[when] = _rising(days[5], when, days[5].clock.step)


# fmt: off
FAULTS = (
    Fault("dead replica", "one server does not answer",
          "KvscopeReplicaDown", _silent(lambda days: days[:1], 0)),
    Fault("half speed", "decode of one replica takes twice as long",
          "KvscopeReplicaSlow", _plays(1, HALF_SPEED)),
    Fault("hot card", "one card of eight throttles, steps take 1.3 times as long",
          "KvscopeGpuSlow", _hot_card),
    Fault("leaking neighbour",
          f"a foreign process takes {LEAK_BYTES // MIB} MiB more of one card each minute",
          "KvscopeDeviceMemoryTight", _leak),
    Fault("slow roll-out",
          "all pods of a model are replaced, five at a time; each loads for 20 min",
          None, _slow_roll_out, 100),
    Fault("stuck roll-out", "five new pods do not start", "KvscopeServerNotReady", _stuck_roll_out),
    Fault("failing replica", "one replica fails every request", "KvscopeReplicaFails", _failing),
    Fault("full pools", "pools of all replicas of a model are too small for their load",
          "KvscopeTtftBudgetBurns", _all_play("qwen", CROWDED)),
    Fault("retries storm",
          "twice the load on all replicas of a model, refused calls come again after 2 s",
          "KvscopeErrorBudgetBurns", _all_play("mistral", STORM)),
)
LOSSES = (
    Fault("ends", "one replica of ten ends in an orderly way; its exporter goes on",
          "KvscopeReplicaDown", _becomes(lambda days: days[0], "gone")),
    Fault("lone ends", "the only replica of a model does",
          "KvscopeEngineDown", _becomes(_lone, "gone")),
    Fault("lone down", "the machine of the only replica of a model does not answer",
          "KvscopeEngineDown", _silent(lambda days: [_lone(days)], 0)),
    Fault("hangs", "one replica is restarted and hangs while it loads",
          "KvscopeServerNotReady", _becomes(lambda days: days[1], "loading")),
    Fault("deleted", "all replicas of a model are deleted",
          "KvscopeModelGone", _silent(lambda days: _of(days, "mistral"), np.nan)),
    Fault("fewer", "one replica of ten is deleted",
          "KvscopeReplicaDown", _silent(lambda days: days[:1], np.nan)),
    Fault("shunned", "the router sends one replica nothing",
          "KvscopeReplicaIdle", lambda days, when: _idle(days[2], when)),
    Fault("smaller", "one replica comes up with 70 % of the blocks",
          "KvscopeReplicaSlow", _smaller),
    Fault("sick card", "XID 79 on one card of one replica of ten, which serves on",
          "KvscopeGpuDegraded", _sick(lambda days: days[0])),
    Fault("lone card", "the same of the only replica of a model",
          "KvscopeGpuFailed", _sick(_lone)),
    Fault("idle night", "a model falls idle: a prompt each five minutes, and each is late",
          None, lambda days, when: _seldom(_lone(days), when, 5, late=True)),
    Fault("failing API", "the API server of one replica of ten answers every request with 5xx",
          "KvscopeReplicaFails", _failing_api),
    Fault("few late", "a quiet model: a prompt each three minutes, and each is late from then on",
          "KvscopeBudgetBurnsSlowly", _few_late),
    Fault("starved", "one request waits, and the engine serves those that come later",
          "KvscopeRequestStarved", _starved),
)
# fmt: on
