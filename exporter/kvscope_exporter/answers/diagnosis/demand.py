"""Demand: requests, their lengths and their content, and a pool and a queue that fill with them."""

from collections.abc import Iterator
from dataclasses import replace

from kvscope_exporter.answers.diagnosis.clauses import (
    STORM_PREEMPTIONS,
    counted,
    found,
    slow_steps,
    two_digits,
)
from kvscope_exporter.answers.diagnosis.course import (
    arrivals,
    evicted_share,
    hit_share,
    pool_share,
    prompt_blocks,
    tokens_by_answer,
    waiting,
)
from kvscope_exporter.answers.diagnosis.finding import Finding
from kvscope_exporter.answers.diagnosis.scene import Scene
from kvscope_exporter.answers.diagnosis.shift import exceeded, excesses, fallen, occurred, risen

_FULL_SHARE = 0.9
"""Share of the pool that running requests hold, above which the next one may not fit."""
_STORM_SHARE = 0.2
"""A rise of requests of which more than this share is given up is a storm of retries."""
_LONG_QUEUE, _LONG_QUEUE_FLOOR = 3.0, 8.0
"""Times its usual length, and requests more than usual."""


def load(scene: Scene) -> Iterator[Finding]:
    """More requests, longer ones, and what they do to pool and queue."""
    values = scene.course.values
    # Clients that wait for their answers ask no faster than they are served: while the queue is
    # long, few requests do not mean that the rise is over.
    queued = excesses(values(waiting), ratio=_LONG_QUEUE, floor=_LONG_QUEUE_FLOOR)
    shift = risen(values(arrivals), ratio=1.8, floor=0.4, least=2, unsaid=queued)
    if shift is not None:
        rose = f"{two_digits(shift.before)} to {two_digits(shift.during)}"
        text = f"requests rose from {rose} a second"
        count = scene.course.total
        arrived = count(shift.begin, shift.end, lambda sums: sums.arrived)
        given_up = count(shift.begin, shift.end, lambda sums: sums.aborted)
        if given_up > _STORM_SHARE * arrived:
            yield found(
                scene,
                "retries",
                shift,
                f"{text}, {given_up / arrived:.0%} of them given up by their clients, which may "
                "ask again",
                "Have clients wait longer between attempts and stop after a few; until then refuse "
                "early (--max-num-queued-reqs, or the gateway's limit).",
            )
        else:
            yield found(
                scene,
                "more_requests",
                shift,
                text,
                "Add a replica, or limit the rate of clients: `kvscope tenants` says whose they "
                "are.",
            )
    shift = risen(values(prompt_blocks), ratio=1.8, floor=4, least=2)
    if shift is not None:
        yield found(
            scene,
            "longer_prompts",
            shift,
            f"prompts grew from {shift.before:,.0f} to {shift.during:,.0f} blocks",
            "See whose they are with `kvscope tenants`; limit prompts, or give long ones a server "
            "of their own.",
        )
    shift = risen(values(tokens_by_answer), ratio=2.0, floor=32, least=2)
    slow = slow_steps(scene)
    # While steps are slow, fewer answers end than tokens come: they only seem longer.
    if shift is not None and not (slow is not None and slow.begin <= shift.begin + 1):
        yield found(
            scene,
            "longer_answers",
            shift,
            f"{shift.during:,.0f} tokens were generated for each answer that ended "
            f"({shift.before:,.0f} before)",
            "Limit max_tokens, or size the pool for these answers: `kvscope advise`.",
        )
    shift = risen(values(waiting), ratio=_LONG_QUEUE, floor=_LONG_QUEUE_FLOOR, least=2)
    if shift is not None:
        yield found(
            scene,
            "queue",
            shift,
            f"up to {shift.extreme:,.0f} requests waited ({shift.before:,.0f} before)",
        )


def pool(scene: Scene) -> Iterator[Finding]:
    """The pool is full, by its level or by what it could not serve."""
    course = scene.course
    shift = exceeded(course.values(pool_share), _FULL_SHARE)
    short = occurred([each.sums.shortages for each in course.slices], least=STORM_PREEMPTIONS)
    remedy = (
        "The pool is too small for this load: ask `kvscope advise` which size would do, and what "
        "else would help."
    )
    if short is not None and (shift is None or short.begin < shift.begin):
        number = course.total(short.begin, short.end, lambda sums: sums.shortages)
        yield found(
            scene, "pool_full", short, f"the pool was out of blocks {number:,.0f} times", remedy
        )
    elif shift is not None:
        is_usual = shift.before > _FULL_SHARE
        before = "all the time" if is_usual else f"({shift.before:.0%} before)"
        text = f"running requests held {shift.extreme:.0%} of the pool {before}"
        yield found(scene, "pool_full", shift, text, remedy)


def content(scene: Scene) -> Iterator[Finding]:
    """The prefix cache finds less than it did."""
    course = scene.course
    resets = [
        replace(
            finding,
            remedy="Find who calls /reset_prefix_cache, or loads weights or adapters at that time.",
        )
        for finding in counted(
            scene,
            "cache_reset",
            lambda sums: sums.resets,
            1,
            "the prefix cache was emptied, {:,.0f} times",
            "the prefix cache was emptied",
        )
    ]
    yield from resets
    shift = fallen(course.values(hit_share), by=0.25, least=3)
    if shift is None:
        return
    text = f"the prefix cache found {shift.during:.0%} of the blocks ({shift.before:.0%} before)"
    evicted = [evicted_share(each) for each in course.slices]
    inside = [value for value in evicted[shift.begin : shift.end] if value is not None]
    outside = [value for value in evicted[: shift.begin] if value is not None]
    gone = _mean(inside)
    if gone - _mean(outside) > (shift.before - shift.during) / 2:
        yield found(
            scene,
            "cache_too_small",
            shift,
            f"{text}: {gone:.0%} had been evicted",
            "`kvscope whatif` says what a larger pool would find, `kvscope advise` what it takes.",
        )
    elif not resets:
        yield found(
            scene,
            "new_content",
            shift,
            f"{text}: the rest was never seen before",
            "Prompts begin differently than before: look for a changed template, system prompt, "
            "salt or tenant. What varies belongs at their end.",
        )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
