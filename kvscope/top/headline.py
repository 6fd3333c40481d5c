"""The headline numbers, as data: where each is read, and what it is over time.

Levels are read; rates, ratios and quantiles are the differences of counters between two readings.
"""

from collections.abc import Callable
from typing import NamedTuple

from kvscope.top.figures import Figures
from kvscope_exporter import words
from kvscope_exporter.answers.diagnosis.course import quantile

Mark = tuple[float, ...]
"""Values of one moment from which a headline number is made."""


class Headline(NamedTuple):
    key: str
    """Its name in JSON."""
    label: str
    show: Callable[[float | None], str]
    read: Callable[[Figures], Mark | None]
    """None: the page does not have it."""
    over: Callable[[Mark, Mark, float], float | None] | None = None
    """From a later and an earlier mark and the seconds between; None: the mark is a level."""
    window: float = 0.0
    """Seconds between the two, at least; 0: two successive readings."""
    help: str = ""


def _level(*names: str, **labels: str) -> Callable[[Figures], Mark | None]:
    """The first of these metrics that the page has."""

    def read(figures: Figures) -> Mark | None:
        values = (figures.value(name, **labels) for name in names)
        return next(((value,) for value in values if value is not None), None)

    return read


def _share_of_usable(state: str) -> Callable[[Figures], Mark | None]:
    def read(figures: Figures) -> Mark | None:
        blocks = figures.value("kvscope_kv_blocks", state=state)
        usable = figures.value("kvscope_kv_usable_blocks")
        return None if blocks is None or not usable else (blocks / usable,)

    return read


def _decoded(figures: Figures) -> Mark | None:
    steps = _level("kvscope_step_tokens_total", phase="decode")(figures)
    return steps or _level("kvscope_generated_tokens_total")(figures)


def _lookups(figures: Figures) -> Mark | None:
    hit = figures.value("kvscope_prefix_cache_hit_tokens_total", phase="first")
    queried = figures.value("kvscope_prefix_cache_queried_tokens_total", phase="first")
    return None if hit is None or queried is None else (hit, queried)


def _first_token(figures: Figures) -> Mark | None:
    buckets = figures.buckets("kvscope_time_to_first_token_seconds")
    return None if buckets is None else (*buckets.bounds, *buckets.counts)


def _rate(now: Mark, before: Mark, seconds: float) -> float | None:
    return (now[0] - before[0]) / seconds


def _ratio(now: Mark, before: Mark, seconds: float) -> float | None:
    whole = now[1] - before[1]
    return (now[0] - before[0]) / whole if whole else None


def _p95(now: Mark, before: Mark, seconds: float) -> float | None:
    num_bounds = len(now) // 2
    counts = [round(n - b) for n, b in zip(now[num_bounds:], before[num_bounds:], strict=True)]
    return quantile(counts, now[:num_bounds], 0.95)


_QUEUES = ("kvscope_requests", "kvscope_sequences")
"""The second is of servers that count sequences only."""
_MINUTE = 60.0
HEADLINES = (
    Headline(
        *("usable_blocks", "usable", words.count, _level("kvscope_kv_usable_blocks")),
        help="blocks that can be handed out",
    ),
    Headline(
        *("active_ratio", "active", words.share, _level("kvscope_kv_active_ratio")),
        help="share of the usable blocks that sequences reference",
    ),
    Headline(
        *("cached_ratio", "cached", words.share, _share_of_usable("cached")),
        help="share that holds content no sequence references",
    ),
    Headline(
        *("free_ratio", "free", words.share, _share_of_usable("free")),
        help="share that holds nothing",
    ),
    Headline(
        *("hit_ratio", "hit rate", words.share, _lookups, _ratio, _MINUTE),
        help="prompt tokens found in the prefix cache, first lookups of the last minute",
    ),
    Headline(
        *("time_to_first_token_p95_seconds", "TTFT p95", words.seconds),
        *(_first_token, _p95),
        window=_MINUTE,
        help="95 % of the last minute's requests had their first token within this time",
    ),
    Headline(
        *("decoded_tokens_per_second", "decode/s", words.short, _decoded, _rate),
        help="tokens generated each second",
    ),
    Headline(
        *("prefilled_tokens_per_second", "prefill/s", words.short),
        *(_level("kvscope_step_tokens_total", phase="prefill"), _rate),
        help="prompt tokens computed each second, without those found in the cache",
    ),
    Headline(
        *("running", "running", words.count, _level(*_QUEUES, state="running")),
        help="requests that run",
    ),
    Headline(
        *("waiting", "waiting", words.count, _level(*_QUEUES, state="waiting")),
        help="requests that wait, preempted ones among them",
    ),
    Headline(
        *("preemptions_per_second", "preempt/s", words.short),
        *(_level("kvscope_preemptions_total"), _rate),
        help="sequences each second that lost their blocks",
    ),
    Headline(
        *("exhaustion_probability_60s", "full 60 s", words.share),
        _level("kvscope_kv_exhaustion_probability", horizon_seconds="60"),
        help="probability that within a minute the pool cannot serve a running sequence",
    ),
)
