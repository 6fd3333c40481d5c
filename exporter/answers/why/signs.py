"""Detectors: each looks for one kind of finding, and says what it saw in numbers."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from exporter.answers.why.course import (
    SLICE_NS,
    Slice,
    answer_tokens,
    arrivals,
    evicted_share,
    hit_share,
    pool_share,
    prompt_blocks,
    quantile,
    step_cost,
    waiting,
)
from exporter.answers.why.finding import Finding, Kind
from exporter.answers.why.scene import Scene
from exporter.answers.why.shift import Shift, exceeded, fallen, occurred, risen
from exporter.fold.timeline import Figures

_STORM_PREEMPTIONS = 10
"""Fewer within an incident are the scheduler's daily work."""
_FULL_SHARE = 0.9
"""Share of the pool that running requests hold, above which the next one may not fit."""
_STALLED_NS = 10 * 10**9
_STORM_SHARE = 0.2
"""A rise of requests of which more than this share is given up is a storm of retries."""
_FEWEST = 3
"""Requests that failed, were refused or given up."""

Detector = Callable[[Scene], Iterator[Finding]]


def _found(scene: Scene, kind: Kind, shift: Shift, text: str, remedy: str = "") -> Finding:
    course = scene.course
    return Finding(
        kind=kind,
        began_ns=course.begin_ns(shift.begin),
        ended_ns=course.begin_ns(shift.end) if shift.is_over else None,
        text=text,
        remedy=remedy,
        evidence={"before": shift.before, "during": shift.during, "extreme": shift.extreme},
    )


def _counted(
    scene: Scene, kind: Kind, count: Callable[[Figures], float], least: float, text: str
) -> Iterator[Finding]:
    """Something that should not happen, with its number in the text."""
    course = scene.course
    shift = occurred([count(each.sums) for each in course.slices], least=least)
    if shift is not None:
        number = course.total(shift.begin, shift.end, count)
        yield Finding(
            kind=kind,
            began_ns=course.first_ns(shift.begin, count),
            ended_ns=course.begin_ns(shift.end) if shift.is_over else None,
            text=text.format(number),
            evidence={"number": number},
        )


def load(scene: Scene) -> Iterator[Finding]:
    """More requests, longer ones, and what they do to pool and queue."""
    values = scene.course.values
    shift = risen(values(arrivals), ratio=1.8, floor=0.4, least=2)
    if shift is not None:
        text = f"requests rose from {shift.before:.2g} to {shift.during:.2g} a second"
        count = scene.course.total
        arrived = count(shift.begin, shift.end, lambda sums: sums.arrived)
        given_up = count(shift.begin, shift.end, lambda sums: sums.aborted)
        if given_up > _STORM_SHARE * arrived:
            yield _found(
                scene,
                "retries",
                shift,
                f"{text}, {given_up / arrived:.0%} of them given up by their clients, which may "
                "ask again",
                "Have clients wait longer between attempts and stop after a few; until then refuse "
                "early (--max-num-queued-reqs, or the gateway's limit).",
            )
        else:
            yield _found(
                scene,
                "more_requests",
                shift,
                text,
                "Add a replica, or limit the rate of clients: `kvscope tenants` says whose they "
                "are.",
            )
    shift = risen(values(prompt_blocks), ratio=1.8, floor=4, least=2)
    if shift is not None:
        yield _found(
            scene,
            "longer_prompts",
            shift,
            f"prompts grew from {shift.before:,.0f} to {shift.during:,.0f} blocks",
            "See whose they are with `kvscope tenants`; limit prompts, or give long ones a server "
            "of their own.",
        )
    shift = risen(values(answer_tokens), ratio=2.0, floor=32, least=2)
    slow = _slow_steps(scene)
    # While steps are slow, fewer answers end than tokens come: they only seem longer.
    if shift is not None and not (slow is not None and slow.begin <= shift.begin + 1):
        yield _found(
            scene,
            "longer_answers",
            shift,
            f"answers grew from {shift.before:,.0f} to {shift.during:,.0f} tokens",
            "Limit max_tokens, or size the pool for these answers: `kvscope advise`.",
        )
    shift = risen(values(waiting), ratio=3.0, floor=8, least=2)
    if shift is not None:
        yield _found(
            scene,
            "queue",
            shift,
            f"up to {shift.extreme:,.0f} requests waited ({shift.before:,.0f} before)",
        )


def pool(scene: Scene) -> Iterator[Finding]:
    """The pool is full, by its level or by what it could not serve."""
    course = scene.course
    shift = exceeded(course.values(pool_share), _FULL_SHARE)
    short = occurred([each.sums.shortages for each in course.slices], least=_STORM_PREEMPTIONS)
    remedy = (
        "The pool is too small for this load: `kvscope advise` says by how much, and what else "
        "would help."
    )
    if short is not None and (shift is None or short.begin < shift.begin):
        number = course.total(short.begin, short.end, lambda sums: sums.shortages)
        yield _found(
            scene, "pool_full", short, f"the pool was out of blocks {number:,.0f} times", remedy
        )
    elif shift is not None:
        is_usual = shift.before > _FULL_SHARE
        before = "all the time" if is_usual else f"({shift.before:.0%} before)"
        text = f"running requests held {shift.extreme:.0%} of the pool {before}"
        yield _found(scene, "pool_full", shift, text, remedy)


def content(scene: Scene) -> Iterator[Finding]:
    """The prefix cache finds less than it did."""
    course = scene.course
    resets = [
        replace(
            finding,
            remedy="Find who calls /reset_prefix_cache, or loads weights or adapters at that time.",
        )
        for finding in _counted(
            scene,
            "cache_reset",
            lambda sums: sums.resets,
            1,
            "the prefix cache was emptied, {:,.0f} times",
        )
    ]
    yield from resets
    shift = fallen(course.values(hit_share), by=0.25, least=3)
    if shift is None:
        return
    found = f"the prefix cache found {shift.during:.0%} of the blocks ({shift.before:.0%} before)"
    evicted = [evicted_share(each) for each in course.slices]
    inside = [value for value in evicted[shift.begin : shift.end] if value is not None]
    outside = [value for value in evicted[: shift.begin] if value is not None]
    gone = _mean(inside)
    if gone - _mean(outside) > (shift.before - shift.during) / 2:
        yield _found(
            scene,
            "cache_too_small",
            shift,
            f"{found}: {gone:.0%} had been evicted",
            "`kvscope whatif` says what a larger pool would find, `kvscope advise` what it takes.",
        )
    elif not resets:
        yield _found(
            scene,
            "new_content",
            shift,
            f"{found}: the rest was never seen before",
            "Prompts begin differently than before: look for a changed template, system prompt, "
            "salt or tenant. What varies belongs at their end.",
        )


def speed(scene: Scene) -> Iterator[Finding]:
    """Latencies that users notice, and steps that take longer for the same work."""
    values = scene.course.values

    def first_token(each: Slice) -> float | None:
        return quantile(each.sums.first_token, scene.first_token_bounds, 0.95)

    def inter_token(each: Slice) -> float | None:
        return quantile(each.sums.inter_token, scene.inter_token_bounds, 0.95)

    shift = _slow_steps(scene)
    if shift is not None:
        yield _found(
            scene,
            "slow_steps",
            shift,
            f"steps took {shift.during / shift.before:.1f} times as long for the same work",
            "No reason is visible from here: look for another process on the GPU or its CPU cores, "
            "a throttled or failing card (`nvidia-smi -q -d PERFORMANCE`), and a profiler.",
        )
    shift = risen(values(first_token), ratio=3.0, floor=0.5, least=2)
    if shift is not None:
        yield _found(scene, "latency", shift, _waited("the first token took", shift))
    shift = risen(values(inter_token), ratio=2.5, floor=0.05, least=3)
    if shift is not None:
        yield _found(scene, "slow_tokens", shift, _waited("each further token took", shift))


def harm(scene: Scene) -> Iterator[Finding]:
    """Preemptions, steps without memory, requests that ended badly."""
    course = scene.course
    for finding in _counted(
        scene,
        "preemptions",
        lambda sums: sums.preemptions,
        _STORM_PREEMPTIONS,
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
    yield from _counted(
        scene,
        "out_of_memory",
        lambda sums: sums.out_of_memory,
        1,
        "{:,.0f} steps ran out of device memory",
    )
    yield from _counted(
        scene, "failures", lambda sums: sums.failed, _FEWEST, "{:,.0f} requests failed"
    )
    yield from _counted(
        scene, "refusals", lambda sums: sums.rejected, _FEWEST, "{:,.0f} requests were refused"
    )
    shift = risen(course.values(_given_up), ratio=2.0, floor=0.15, least=2)
    if shift is not None:
        number = course.total(shift.begin, shift.end, lambda sums: sums.aborted)
        if number >= _FEWEST:
            yield _found(
                scene, "given_up", shift, f"{number:,.0f} requests were given up by their clients"
            )


def engine(scene: Scene) -> Iterator[Finding]:
    """The engine or its observer is not what it was."""
    now, course = scene.now_ns, scene.course
    silent, last = scene.silent_since_ns, scene.last_step_ns
    if silent is not None:
        yield Finding(
            kind="gone",
            began_ns=silent or now,
            ended_ns=None,
            text=f"the engine has been silent for {(now - silent) / 1e9:,.0f} s"
            if silent
            else "the engine was never heard",
            remedy="Look for its process and its last log lines; the kernel's log has the reason "
            "if it was killed.",
        )
    elif last is not None and scene.has_work and now - last > _STALLED_NS:
        yield Finding(
            kind="stalled",
            began_ns=last,
            ended_ns=None,
            text=f"no step has ended for {(now - last) / 1e9:,.0f} s, although requests wait",
            remedy="`kvscope stacks` prints where its threads are; then restart it.",
        )
    for restart_ns in course.restarts_ns[-1:]:
        yield Finding(
            kind="restarted",
            began_ns=restart_ns,
            ended_ns=restart_ns,
            text="the engine was restarted: its cache is empty",
            remedy="Its log before that moment says why it ended.",
        )
    if scene.observer_stopped is not None:
        yield Finding(
            kind="observer_stopped",
            began_ns=last or now,
            ended_ns=None,
            text=f"the observer switched itself off: {scene.observer_stopped}",
            remedy="The server goes on unharmed and unseen; report the message and restart it.",
        )
    elif scene.imbalance:
        yield Finding(
            kind="ledger",
            began_ns=last or now,
            ended_ns=None,
            text=f"{scene.imbalance:,} blocks differ from the engine's own count",
            remedy="Figures of blocks are wrong until the next snapshot; save a recording and "
            "report it.",
        )


def _slow_steps(scene: Scene) -> Shift | None:
    return risen(scene.course.values(step_cost), ratio=1.7, floor=0, least=2)


def _given_up(each: Slice) -> float | None:
    """Share of the requests that ended in this slice."""
    sums = each.sums
    ended = sums.ended + sums.aborted + sums.failed
    return sums.aborted / ended if ended else None


def _waited(what: str, shift: Shift) -> str:
    return f"{what} {shift.extreme:,.2g} s (p95; {shift.before:,.2g} s before)"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
