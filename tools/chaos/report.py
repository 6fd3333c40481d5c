"""Effects of the attacks on others, as a table, and every miss of a limit in words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from tools.chaos.figures import Figures
from tools.chaos.limits import (
    LOG_LINES,
    MORE_DESCRIPTORS,
    MORE_RSS_MIB,
    MORE_THREADS,
)

_MAX_FAILURES = 3
"""Failures of one attack that are quoted."""
_COLUMNS = "{:<28} {:>6} {:>10} {:>14} {:>8} {:>11} {:>9}  {}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One attack, once."""

    health_p99: float
    """Seconds, as is the next; NaN: nothing was asked."""
    completion_p99: float
    undisturbed_health_p99: float
    """Seconds, as is the next: measured before this round, or before the first one."""
    undisturbed_completion_p99: float
    peak: Figures
    log_lines: int
    failures: Sequence[str] = ()
    """Failures of the unrelated client."""
    broken_promise: str = ""
    """Empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The server while nothing disturbs it, and what an attack may add."""

    health_p99: float
    completion_p99: float
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
    pairs = (
        ("health", [r.health_p99 - r.undisturbed_health_p99 for r in rounds]),
        ("completion", [r.completion_p99 - r.undisturbed_completion_p99 for r in rounds]),
    )
    missed = []
    for name, more in pairs:
        seconds, limit = median(more), baseline.more_p99_seconds
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
    rss = max(r.peak.rss_mib for r in rounds) - baseline.figures.rss_mib
    if rss > MORE_RSS_MIB:
        found.append(f"{rss} MiB more memory, limit {MORE_RSS_MIB} MiB")
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
    found = []
    before, after = baseline.figures, ending.figures
    for what, more, limit in (
        ("MiB of memory", after.rss_mib - before.rss_mib, MORE_RSS_MIB),
        ("descriptors", after.descriptors - before.descriptors, MORE_DESCRIPTORS),
        ("threads", after.threads - before.threads, MORE_THREADS),
    ):
        if more > limit:
            found.append(f"{more} more {what} at the end, limit {limit}")
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
    return "\n".join(
        (
            f"undisturbed: p99 of health {baseline.health_p99 * 1e3:.0f} ms, of completion "
            f"{baseline.completion_p99 * 1e3:.0f} ms; {baseline.figures}",
            _COLUMNS.format(
                "attack", "rounds", "health ms", "completion ms", "RSS MiB", "descriptors",
                "log lines", "",
            ),
        )
    )  # fmt: skip


def row(name: str, rounds: Sequence[Round], baseline: Baseline) -> str:
    """A line of the table; the times are medians of the rounds' p99, the rest is the largest."""
    wrong = missed(rounds, baseline)
    return _COLUMNS.format(
        name,
        len(rounds),
        f"{median(r.health_p99 for r in rounds) * 1e3:.0f}",
        f"{median(r.completion_p99 for r in rounds) * 1e3:.0f}",
        f"{max(r.peak.rss_mib for r in rounds) - baseline.figures.rss_mib:+d}",
        max(r.peak.descriptors for r in rounds),
        max(r.log_lines for r in rounds),
        f"MISSED: {'; '.join(wrong)}" if wrong else "held",
    )


def closing(ending: Ending, baseline: Baseline) -> str:
    """The last line of the table."""
    wrong = missed_at_the_end(ending, baseline)
    verdict = f"MISSED: {'; '.join(wrong)}" if wrong else "held"
    return f"at the end: {ending.figures}, {ending.num_compared} replies compared: {verdict}"
