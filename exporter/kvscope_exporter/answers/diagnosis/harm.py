"""Harm: latencies, preemptions, steps without memory, requests that end badly."""

from collections.abc import Iterator
from dataclasses import replace

from kvscope_exporter.answers.diagnosis.clauses import (
    STORM_PREEMPTIONS,
    counted,
    found,
    slow_steps,
    two_digits,
)
from kvscope_exporter.answers.diagnosis.course import SLICE_NS, Slice, quantile
from kvscope_exporter.answers.diagnosis.finding import Finding
from kvscope_exporter.answers.diagnosis.scene import Scene
from kvscope_exporter.answers.diagnosis.shift import Shift, risen

_FEWEST = 3
"""Requests that failed, found the queue full or were given up."""


def speed(scene: Scene) -> Iterator[Finding]:
    """Latencies that users notice, and steps that take longer for the same work."""
    values = scene.course.values

    def first_token(each: Slice) -> float | None:
        return quantile(each.sums.first_token, scene.first_token_bounds, 0.95)

    def inter_token(each: Slice) -> float | None:
        return quantile(each.sums.inter_token, scene.inter_token_bounds, 0.95)

    shift = slow_steps(scene)
    if shift is not None:
        yield found(
            scene,
            "slow_steps",
            shift,
            f"steps took {shift.during / shift.before:.1f} times as long for the same work",
            "No reason is visible from here: look for another process on the GPU or its CPU cores, "
            "a throttled or failing card (`nvidia-smi -q -d PERFORMANCE`), and a profiler.",
        )
    shift = risen(values(first_token), ratio=3.0, floor=0.5, least=2)
    if shift is not None:
        yield found(scene, "latency", shift, _waited("the first token took", shift))
    shift = risen(values(inter_token), ratio=2.5, floor=0.05, least=3)
    if shift is not None:
        yield found(scene, "slow_tokens", shift, _waited("each further token took", shift))


def harm(scene: Scene) -> Iterator[Finding]:
    """Preemptions, steps without memory, requests that ended badly."""
    course = scene.course
    for finding in counted(
        scene,
        "preemptions",
        lambda sums: sums.preemptions,
        STORM_PREEMPTIONS,
        "{:,.0f} preemptions",
    ):
        begin = (finding.began_ns - course.begin_ns(0)) // SLICE_NS
        tokens = course.total(begin, len(course.slices), lambda sums: sums.recomputed_tokens)
        stalled = course.total(begin, len(course.slices), lambda sums: sums.stalled_seconds)
        cost = f", {tokens:,.0f} tokens computed again, {stalled:,.0f} s of waiting"
        yield replace(
            finding,
            text=finding.text + cost,
            remedy="`kvscope advise` says what ends them, and /api/preemptions lists the victims.",
            evidence={**finding.evidence, "recomputed_tokens": tokens, "stalled_seconds": stalled},
        )
    yield from counted(
        scene,
        "out_of_memory",
        lambda sums: sums.out_of_memory,
        1,
        "{:,.0f} steps ran out of device memory",
        "a step ran out of device memory",
    )
    yield from counted(
        scene,
        "failures",
        lambda sums: sums.failed + sums.met_dead,
        _FEWEST,
        "{:,.0f} requests failed",
    )
    # More capacity does not help requests that are invalid, too long or beyond a client's limit.
    yield from counted(
        scene,
        "refusals",
        lambda sums: sums.crowded_out,
        _FEWEST,
        "{:,.0f} requests were refused, since the queue was full",
    )
    shift = risen(course.values(_given_up), ratio=2.0, floor=0.15, least=2)
    if shift is not None:
        number = course.total(shift.begin, shift.end, lambda sums: sums.aborted)
        if number >= _FEWEST:
            yield found(
                scene, "given_up", shift, f"{number:,.0f} requests were given up by their clients"
            )


def _given_up(each: Slice) -> float | None:
    """Share of the requests that ended in this slice."""
    sums = each.sums
    ended = sums.ended + sums.aborted + sums.failed
    return sums.aborted / ended if ended else None


def _waited(what: str, shift: Shift) -> str:
    return f"{what} {two_digits(shift.extreme)} s (p95; {two_digits(shift.before)} s before)"
