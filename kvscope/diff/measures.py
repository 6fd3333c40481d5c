"""The figures by which two engines are compared, each with the events that it needs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kvscope_exporter.answers.course import CourseAnswer, Stretch
from kvscope_exporter.answers.diagnosis.course import quantile

Topic = Literal["load", "cache", "bill", "failures", "latency", "speed", "pool", "gpu"]
Unit = Literal["", "share", "seconds", "bytes"]
_STEP_TOKENS = 256
"""A step takes as long as computing that many tokens, whatever it computes; roughly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A figure of any stretch of an engine's past."""

    name: str
    """Stable: a key of the JSON."""
    text: str
    topic: Topic
    unit: Unit = ""
    floor: float = 0.0
    """The least difference that matters."""
    events: tuple[str, ...] = ()
    """Events without which the figure is unknown."""
    needs_misses: bool = False
    figure: Callable[[Sequence[Stretch]], float | None]


def measures_of(course: CourseAnswer) -> list[Measure]:
    """Those that this engine's own words allow: histograms have its bounds."""
    return [
        *_load(course.slice_seconds),
        *_cache(course.missed),
        *_BILL,
        *_FAILURES,
        *_latency("first_token", "first token", course.first_token_bounds, ("FirstToken",), 0.02),
        *_latency("inter_token", "time between tokens", course.inter_token_bounds, (), 0.002),
        *_SPEED,
        *_POOL,
    ]


def is_reported(measure: Measure, course: CourseAnswer) -> bool:
    known = course.misses_known or not measure.needs_misses
    return known and set(measure.events) <= set(course.reported)


def total(slices: Sequence[Stretch], name: str) -> float:
    """The sum of a count."""
    return sum(_number(each.sums[name]) for each in slices)


def per(count: str, base: str, least: float = 1) -> Callable[[Sequence[Stretch]], float | None]:
    """A count over a second one; unknown below `least` of the latter, and for an older server that
    does not have them."""

    def figure(slices: Sequence[Stretch]) -> float | None:
        if any(name not in each.sums for each in slices for name in (count, base)):
            return None
        whole = total(slices, base)
        return total(slices, count) / whole if whole >= least else None

    return figure


def _refused(slices: Sequence[Stretch]) -> float | None:
    """The refused share of all requests that came; refused ones never arrive."""
    refused = total(slices, "rejected")
    came = total(slices, "arrived") + refused
    return refused / came if came >= 1 else None


def _number(value: Any) -> float:
    return float(value)


def _load(slice_seconds: float) -> list[Measure]:
    def rate(slices: Sequence[Stretch]) -> float:
        return total(slices, "arrived") / (len(slices) * slice_seconds)

    arrival = ("RequestArrived", "RequestFinished")
    return [
        Measure(
            name="requests_per_second",
            text="requests a second",
            topic="load",
            events=arrival,
            figure=rate,
        ),
        Measure(
            name="prompt_blocks",
            text="blocks of a prompt",
            topic="load",
            floor=0.5,
            events=("RequestArrived", "SequenceAdded"),
            figure=per("prompt_blocks", "prompts"),
        ),
        Measure(
            name="answer_tokens",
            text="tokens of an answer",
            topic="load",
            floor=1,
            events=("SequenceFinished",),
            figure=per("answer_tokens", "answers"),
        ),
    ]


def _cache(causes: Sequence[str]) -> list[Measure]:
    lookup = ("PrefixLookup",)
    hits = Measure(
        name="hit_share",
        text="blocks found in the cache",
        topic="cache",
        unit="share",
        floor=0.02,
        events=lookup,
        figure=per("hit_blocks", "queried_blocks", 20),
    )
    return [hits, *(_missed(place, cause) for place, cause in enumerate(causes))]


def _missed(place: int, cause: str) -> Measure:
    def figure(slices: Sequence[Stretch]) -> float | None:
        asked = total(slices, "queried_blocks")
        missed = sum(_counts(each, "missed_blocks")[place] for each in slices)
        return missed / asked if asked >= 20 else None

    return Measure(
        name=f"missed_{cause}_share",
        text=f"blocks missed: {cause}",
        topic="cache",
        unit="share",
        floor=0.02,
        events=("PrefixLookup",),
        needs_misses=True,
        figure=figure,
    )


_BILL = [
    Measure(
        name="preemptions_per_sequence",
        text="preemptions of a sequence",
        topic="bill",
        floor=0.01,
        events=("SequenceAdded", "RequestPreempted"),
        figure=per("preemptions", "sequences"),
    ),
    Measure(
        name="recomputed_tokens_per_sequence",
        text="tokens of a sequence computed again",
        topic="bill",
        floor=1,
        events=("SequenceAdded", "RequestPreempted"),
        figure=per("recomputed_tokens", "sequences"),
    ),
    Measure(
        name="stalled_seconds_per_sequence",
        text="wait of a sequence after preemption",
        topic="bill",
        unit="seconds",
        floor=0.01,
        events=("SequenceAdded", "RequestPreempted", "RequestResumed"),
        figure=per("stalled_seconds", "sequences"),
    ),
    Measure(
        name="out_of_memory_per_step",
        text="steps out of device memory",
        topic="bill",
        unit="share",
        floor=0.001,
        events=("DeviceOutOfMemory",),
        figure=per("out_of_memory", "steps"),
    ),
]
_FAILURES = [
    Measure(
        name=f"{count}_share",
        text=f"requests {words}",
        topic="failures",
        unit="share",
        floor=0.01,
        events=events,
        figure=per(count, "arrived"),
    )
    for count, words, events in (
        ("failed", "failed", ("RequestFinished",)),
        ("aborted", "given up by clients", ("RequestFinished",)),
    )
]
_FAILURES.append(
    Measure(
        name="rejected_share",
        text="requests refused",
        topic="failures",
        unit="share",
        floor=0.01,
        events=("RequestRejected",),
        figure=_refused,
    )
)


def _latency(
    name: str, text: str, bounds: Sequence[float], events: tuple[str, ...], floor: float
) -> list[Measure]:
    return [_quantile(name, text, bounds, events, floor, share) for share in (0.5, 0.95)]


def _quantile(
    name: str,
    text: str,
    bounds: Sequence[float],
    events: tuple[str, ...],
    floor: float,
    share: float,
) -> Measure:
    def figure(slices: Sequence[Stretch]) -> float | None:
        columns = zip(*(_counts(each, name) for each in slices), strict=True)
        return quantile([sum(column) for column in columns], bounds, share)

    return Measure(
        name=f"{name}_seconds_p{share * 100:.0f}",
        text=f"{text}, p{share * 100:.0f}",
        topic="latency",
        unit="seconds",
        floor=floor,
        events=events,
        figure=figure,
    )


def _counts(each: Stretch, name: str) -> list[int]:
    value = each.sums[name]
    assert isinstance(value, list), name
    return value


def _step_cost(slices: Sequence[Stretch]) -> float | None:
    """Seconds of a step that computes one token."""
    steps, tokens = total(slices, "steps"), 0.0
    for count in ("prefill_tokens", "decode_tokens"):
        tokens += total(slices, count)
    work = steps + tokens / _STEP_TOKENS
    return total(slices, "step_seconds") / work if steps else None


_SPEED = [
    Measure(
        name="step_cost_seconds",
        text="time of a step for the same work",
        topic="speed",
        unit="seconds",
        figure=_step_cost,
    ),
]


def _mean(slices: Sequence[Stretch], level: str) -> float | None:
    return sum(_number(each.levels[level]) for each in slices) / len(slices) if slices else None


def _pool_share(slices: Sequence[Stretch]) -> float | None:
    usable = sum(_number(each.levels["usable"]) for each in slices)
    return sum(_number(each.levels["active"]) for each in slices) / usable if usable else None


_POOL = [
    Measure(
        name="active_share",
        text="share of the pool that requests hold",
        topic="pool",
        unit="share",
        floor=0.05,
        figure=_pool_share,
    ),
    *(
        Measure(
            name=level,
            text=f"requests {level}",
            topic="pool",
            floor=1,
            events=("RequestScheduled", "RequestFinished"),
            figure=lambda slices, level=level: _mean(slices, level),  # type: ignore[misc]
        )
        for level in ("waiting", "running")
    ),
]
