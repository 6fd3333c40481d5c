"""The result of a trial as text: what fired, how often, when, at night, and what was held back."""

from collections.abc import Iterable, Iterator, Sequence, Set
from datetime import datetime, time, tzinfo
from typing import Any

import msgspec

from kvscope.backtest.evaluation import Firing, Rules
from kvscope.backtest.samples import Samples
from kvscope_events.printable import printable

NIGHT = time(22), time(7)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class FiredAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert of one severity. A firing is one of one set of labels."""

    alert: str
    severity: str
    firings: int
    held_back: int
    """Firings of which another alert held back every message."""
    at_night: int
    """The others that began at night."""
    first: float
    """Unix time."""
    longest_seconds: float
    total_seconds: float


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    begins: float
    ends: float
    fired: list[FiredAlert]
    too_long: list[str]
    """Alerts that wait longer than these samples last."""
    without_data: list[str]
    """Alerts that read no metric of these samples."""


def trial(
    rules: Rules,
    samples: Samples,
    firings: Sequence[Firing],
    held: Set[Firing],
    zone: tzinfo,
) -> Trial:
    """held: the firings that were held back."""
    kinds = dict.fromkeys((firing.name, firing.severity) for firing in firings)
    seconds = samples.ends - samples.begins
    names = {alert["alert"]: alert for alert in rules.alerts}
    return Trial(
        source=samples.source,
        begins=samples.begins,
        ends=samples.ends,
        fired=[
            _fired([f for f in firings if (f.name, f.severity) == kind], held, zone)
            for kind in kinds
        ],
        too_long=[
            name for name, alert in names.items() if _seconds(alert.get("for", "0s")) > seconds
        ],
        without_data=[
            name
            for name, alert in names.items()
            if not rules.read_by(alert["expr"]) & samples.names - {"up"}
            and "up" not in rules.read_by(alert["expr"])
        ],
    )


def lines_of(result: Trial, zone: tzinfo) -> Iterator[str]:
    hours = (result.ends - result.begins) / 3600
    length = f"{hours * 60:.0f} minutes" if hours < 3 else f"{hours:.0f} hours"
    yield printable(f"{result.source}: {_time(result.begins, zone)}, {length}")
    if result.fired:
        yield (
            f"{'alert':<34}{'severity':<10}{'fired':>6}{'held back':>11}{'at night':>10}  "
            f"{'first':<18}longest"
        )
    for each in result.fired:
        yield printable(
            f"{each.alert:<34}{each.severity:<10}{each.firings:>6}{each.held_back:>11}"
            f"{each.at_night:>10}  "
            f"{_time(each.first, zone):<18}{each.longest_seconds / 60:.0f} min"
        )
    critical = [each for each in result.fired if each.severity == "critical"]
    yield (
        f"Firings: {_sum(result.fired)}, {_sum(critical)} of them critical; held back by others: "
        f"{sum(e.held_back for e in result.fired)}, {sum(e.held_back for e in critical)} critical; "
        f"of the rest at night (22 to 7, {zone}): "
        f"{sum(e.at_night for e in result.fired)}, {sum(e.at_night for e in critical)} critical"
    )
    if result.too_long:
        yield f"Too short for: {', '.join(result.too_long)}"
    if result.without_data:
        yield f"Without data: {', '.join(result.without_data)}"


def _fired(firings: Sequence[Firing], held: Set[Firing], zone: tzinfo) -> FiredAlert:
    lengths = [firing.until - firing.since for firing in firings]
    return FiredAlert(
        alert=firings[0].name,
        severity=firings[0].severity,
        firings=len(firings),
        held_back=sum(firing in held for firing in firings),
        at_night=sum(_is_night(each.since, zone) for each in firings if each not in held),
        first=firings[0].since,
        longest_seconds=max(lengths),
        total_seconds=sum(lengths),
    )


def _is_night(seconds: float, zone: tzinfo) -> bool:
    moment = datetime.fromtimestamp(seconds, zone).time()
    return moment >= NIGHT[0] or moment < NIGHT[1]


def _sum(fired: Iterable[FiredAlert]) -> int:
    return sum(each.firings for each in fired)


def _time(seconds: float, zone: tzinfo) -> str:
    return datetime.fromtimestamp(seconds, zone).strftime("%Y-%m-%d %H:%M")


def _seconds(duration: Any) -> int:
    text = str(duration)
    return int(text[:-1]) * _UNITS[text[-1]]
