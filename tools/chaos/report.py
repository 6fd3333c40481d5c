"""Effects of the attacks on others, as a table, and every miss of a limit in words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal, get_args

from tools.chaos.frame import Figures
from tools.chaos.limits import LOG_LINES, MORE_DESCRIPTORS, MORE_RSS_MIB, MORE_THREADS

Asked = Literal["health", "completion"]
ASKED: tuple[Asked, ...] = get_args(Asked)
_MAX_FAILURES = 3
"""Failures of one attack that are quoted."""
_COLUMNS = "{:<28} {:>6} {:>10} {:>14} {:>8} {:>11} {:>9}  {}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One attack, once."""

    p99: dict[Asked, float]
    """Seconds; NaN: nothing was asked."""
    undisturbed_p99: dict[Asked, float]
    """Measured before this round, or before the first one."""
    peak: Figures
    log_lines: int
    failures: Sequence[str] = ()
    """Failures of the unrelated client."""
    broken_promise: str = ""
    """Empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The server while nothing disturbs it, and what an attack may add."""

    p99: dict[Asked, float]
    more_p99_seconds: float
    figures: Figures


@dataclass(slots=True, kw_only=True)
class Ending:
    """The server after the last attack, settled."""

    figures: Figures
    gauges: dict[str, float | None] = field(default_factory=dict)
    """That must be 0, by name; None: absent."""
    num_compared: int
    differing: Sequence[str]
    failures: Sequence[str]
    """Failures of the clients whose tokens are compared."""
    tracebacks: int


def times_missed(rounds: Sequence[Round], baseline: Baseline) -> list[str]:
    """The limits of times that the median of the rounds misses."""
    missed, limit = [], baseline.more_p99_seconds
    for name in ASKED:
        seconds = median(r.p99[name] - r.undisturbed_p99[name] for r in rounds)
        if math.isnan(seconds):
            missed.append(f"{name} was never answered")
        elif seconds > limit:
            missed.append(
                f"p99 of {name} {seconds * 1e3:.0f} ms over undisturbed, limit {limit * 1e3:.0f} ms"
            )
    return missed


def missed(rounds: Sequence[Round], baseline: Baseline) -> list[str]:
    """Every limit that an attack misses."""
    found = times_missed(rounds, baseline)
    for one in rounds:
        found += one.peak.more(baseline.figures, "meanwhile", rss_mib=MORE_RSS_MIB)
    lines = max(r.log_lines for r in rounds)
    if lines > LOG_LINES:
        found.append(f"{lines} lines in the log, limit {LOG_LINES}")
    for one in rounds:
        found += one.failures[:_MAX_FAILURES]
        if len(one.failures) > _MAX_FAILURES:
            found.append(f"{len(one.failures)} failures of the unrelated client in all")
        if one.broken_promise:
            found.append(one.broken_promise)
    return found


def missed_at_the_end(ending: Ending, baseline: Baseline) -> list[str]:
    """Every limit that is missed after the attacks."""
    found = ending.figures.more(
        baseline.figures,
        rss_mib=MORE_RSS_MIB,
        descriptors=MORE_DESCRIPTORS,
        threads=MORE_THREADS,
    )
    found += [
        f"{name} is {value} at the end" for name, value in ending.gauges.items() if value != 0
    ]
    if not ending.num_compared:
        found.append("no reply was compared")
    found += [f"other tokens under attack: {text}" for text in ending.differing[:_MAX_FAILURES]]
    found += [f"no reply under attack: {text}" for text in ending.failures[:_MAX_FAILURES]]
    if ending.tracebacks:
        found.append(f"{ending.tracebacks} tracebacks in the log")
    return found


def heading(baseline: Baseline) -> str:
    """The first lines of the table."""
    times = ", ".join(f"{name} {seconds * 1e3:.0f} ms" for name, seconds in baseline.p99.items())
    columns = ("rounds", "health ms", "completion ms", "RSS MiB", "descriptors", "log lines", "")
    return f"undisturbed: p99 of {times}; {baseline.figures}\n{_COLUMNS.format('attack', *columns)}"


def row(name: str, rounds: Sequence[Round], baseline: Baseline) -> str:
    """A line of the table; the times are medians of the rounds' p99, the rest is the largest."""
    return _COLUMNS.format(
        name,
        len(rounds),
        *(f"{median(r.p99[asked] for r in rounds) * 1e3:.0f}" for asked in ASKED),
        f"{max(r.peak.rss_mib for r in rounds) - baseline.figures.rss_mib:+d}",
        max(r.peak.descriptors for r in rounds),
        max(r.log_lines for r in rounds),
        _verdict(missed(rounds, baseline)),
    )


def closing(ending: Ending, baseline: Baseline) -> str:
    """The last line of the table."""
    verdict = _verdict(missed_at_the_end(ending, baseline))
    return f"at the end: {ending.figures}, {ending.num_compared} replies compared: {verdict}"


def _verdict(wrong: Sequence[str]) -> str:
    return f"MISSED: {'; '.join(wrong)}" if wrong else "held"
