"""The headline numbers, as data: where each is read, and what it is over time.

Levels are read; rates, ratios and quantiles are the differences of counters between two readings.
"""

from collections.abc import Callable
from dataclasses import dataclass

from exporter import words
from exporter.answers.why.course import quantile
from kvscope.top.figures import Figures

Mark = tuple[float, ...]
"""Values of one moment from which a headline number is made."""
_TTFT = "kvscope_time_to_first_token_seconds"
_HIT_SECONDS = 60.0
_QUANTILE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    key: str
    """Its name in JSON."""
    label: str
    read: Callable[[Figures], Mark | None]
    """None: the page does not have it."""
    over: Callable[[Mark, Mark, float], float | None] | None = None
    """From the marks of two moments and the seconds between; None: the mark is a level."""
    window: float = 0.0
    """Seconds between the two moments, at least; 0: two successive readings."""
    show: Callable[[float | None], str] = words.short
    top: float | None = None
    """The highest value that there can be, for its bars."""
    help: str


def _level(name: str, **labels: str) -> Callable[[Figures], Mark | None]:
    def read(figures: Figures) -> Mark | None:
        value = figures.value(name, **labels)
        return None if value is None else (value,)

    return read


def _share_of_usable(state: str) -> Callable[[Figures], Mark | None]:
    def read(figures: Figures) -> Mark | None:
        blocks = figures.value("kvscope_kv_blocks", state=state)
        usable = figures.value("kvscope_kv_usable_blocks")
        return None if blocks is None or not usable else (blocks / usable,)

    return read


def _queue(state: str) -> Callable[[Figures], Mark | None]:
    """Requests; of a server that counts sequences only, these."""

    def read(figures: Figures) -> Mark | None:
        for name in ("kvscope_requests", "kvscope_sequences"):
            value = figures.value(name, state=state)
            if value is not None:
                return (value,)
        return None

    return read


def _decoded(figures: Figures) -> Mark | None:
    value = figures.value("kvscope_step_tokens_total", phase="decode")
    if value is None:
        value = figures.value("kvscope_generated_tokens_total")
    return None if value is None else (value,)


def _lookups(figures: Figures) -> Mark | None:
    hit = figures.value("kvscope_prefix_cache_hit_tokens_total", phase="first")
    queried = figures.value("kvscope_prefix_cache_queried_tokens_total", phase="first")
    return None if hit is None or queried is None else (hit, queried)


def _first_token(figures: Figures) -> Mark | None:
    buckets = figures.buckets(_TTFT)
    return None if buckets is None else (*buckets.bounds, *buckets.counts)


def _rate(now: Mark, before: Mark, seconds: float) -> float | None:
    return (now[0] - before[0]) / seconds


def _ratio(now: Mark, before: Mark, seconds: float) -> float | None:
    whole = now[1] - before[1]
    return (now[0] - before[0]) / whole if whole else None


def _quantile(of: float) -> Callable[[Mark, Mark, float], float | None]:
    def over(now: Mark, before: Mark, seconds: float) -> float | None:
        num_bounds = len(now) // 2
        counts = [round(n - b) for n, b in zip(now[num_bounds:], before[num_bounds:], strict=True)]
        return quantile(counts, now[:num_bounds], of)

    return over


HEADLINES = (
    Headline(
        key="usable_blocks",
        label="usable",
        read=_level("kvscope_kv_usable_blocks"),
        show=words.count,
        help="blocks that can be handed out",
    ),
    Headline(
        key="active_ratio",
        label="active",
        read=_level("kvscope_kv_active_ratio"),
        show=words.share,
        top=1.0,
        help="share of the usable blocks that sequences reference",
    ),
    Headline(
        key="cached_ratio",
        label="cached",
        read=_share_of_usable("cached"),
        show=words.share,
        top=1.0,
        help="share that holds content no sequence references",
    ),
    Headline(
        key="free_ratio",
        label="free",
        read=_share_of_usable("free"),
        show=words.share,
        top=1.0,
        help="share that holds nothing",
    ),
    Headline(
        key="hit_ratio",
        label="hit rate",
        read=_lookups,
        over=_ratio,
        window=_HIT_SECONDS,
        show=words.share,
        top=1.0,
        help="prompt tokens found in the prefix cache, first lookups of the last minute",
    ),
    Headline(
        key="time_to_first_token_p95_seconds",
        label="TTFT p95",
        read=_first_token,
        over=_quantile(0.95),
        window=_QUANTILE_SECONDS,
        show=words.seconds,
        help="95 % of the last minute's requests had their first token within this time",
    ),
    Headline(
        key="decoded_tokens_per_second",
        label="decode/s",
        read=_decoded,
        over=_rate,
        help="tokens generated each second",
    ),
    Headline(
        key="prefilled_tokens_per_second",
        label="prefill/s",
        read=_level("kvscope_step_tokens_total", phase="prefill"),
        over=_rate,
        help="prompt tokens computed each second, without those found in the cache",
    ),
    Headline(
        key="running",
        label="running",
        read=_queue("running"),
        show=words.count,
        help="requests that run",
    ),
    Headline(
        key="waiting",
        label="waiting",
        read=_queue("waiting"),
        show=words.count,
        help="requests that wait, preempted ones among them",
    ),
    Headline(
        key="preemptions_per_second",
        label="preempt/s",
        read=_level("kvscope_preemptions_total"),
        over=_rate,
        help="sequences each second that lost their blocks",
    ),
    Headline(
        key="exhaustion_probability_60s",
        label="full 60 s",
        read=_level("kvscope_kv_exhaustion_probability", horizon_seconds="60"),
        show=words.share,
        top=1.0,
        help="probability that within a minute the pool cannot serve a running sequence",
    ),
)
