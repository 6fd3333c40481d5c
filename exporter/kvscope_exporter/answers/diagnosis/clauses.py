"""The clause of the harm and its cause: its size, where its time went, and a remedy."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from kvscope_exporter import words
from kvscope_exporter.adviser.step_budget import MIN_FASTER, speedup
from kvscope_exporter.answers.diagnosis.course import Course
from kvscope_exporter.answers.diagnosis.finding import Finding, by_kind
from kvscope_exporter.answers.diagnosis.roots import SLOW_REMEDY, slow_text
from kvscope_exporter.answers.diagnosis.scene import Scene
from kvscope_exporter.answers.diagnosis.verdict import OVER, Verdict
from kvscope_exporter.catalogue.incident import Kind
from kvscope_exporter.state.tenants import NOBODY
from kvscope_exporter.state.time_parts import LATE_SECONDS, SLOW_TOKEN_SECONDS
from kvscope_exporter.state.timeline import MISSED

_SIMILAR = 0.7
"""A second part of at least this share of the largest is named as well."""
_FULL = 0.75
"""Share of the pool above which more sequences would not fit."""
_MOST = 0.5
"""Share of what the harm consists of above which a tenant is named."""
_ALL = 0.995
"""Share from which it is as good as the only one, and naming it says nothing."""
_PARTS: dict[Kind, str] = {
    "sequence_limit": "waiting for a sequence slot",
    "pool_full": "waiting for blocks",
    "token_budget": "waiting for the token budget of a step",
    "transfer": "waiting for content that loads, a grammar or an adapter",
    "not_admitting": "waiting although slots, blocks and tokens were free",
    "long_steps": "in steps that take as long as their work does",
    "preemptions": "preempted, or computed again",
    "prefill": "computing their own prompts",
    "interference": "in steps that computed other prompts",
    "slow_steps": "in steps that took longer than their work does",
    "host": "between the steps",
    "latency": "for a reason that this server does not report",
}
_REMEDIES: dict[Kind, str] = {
    "sequence_limit": "Allow more sequences ({sequences}), as far as the pool has room for them; "
    "otherwise add a replica.",
    "pool_full": "The pool is too small for this load: a larger one, shorter requests, or a "
    "replica.",
    "token_budget": "Allow more tokens in a step ({tokens}), or send long prompts to a server of "
    "their own.",
    "transfer": "Look at the connector, the tier below the pool, or the compiler of grammars: "
    "requests wait for it, not for the engine.",
    "not_admitting": "The scheduler has stopped admitting: `kvscope observer stacks` prints where "
    "it is; then restart the server.",
    "long_steps": "Steps are as long as their work: fewer sequences at a time ({sequences}), a "
    "faster card, or a replica.",
    "preemptions": "The pool is too small for those that run: a larger one, fewer sequences at a "
    "time ({sequences}), or shorter answers.",
    "prefill": "Prompts are long, or little of them is found: shorten them, have what they share "
    "at their beginning, or add a replica.",
    "interference": "Compute prompts in smaller chunks ({tokens}), or on servers of their own.",
    "slow_steps": SLOW_REMEDY,
    "host": "The host holds the card up: look at its cores, its other processes and the logging of "
    "the server.",
    "latency": "Update the server, or attach an observer that reports why requests wait.",
    "out_of_memory": "Leave more memory to the steps: a smaller pool or a smaller step ({tokens}).",
    "failures": "The server's log has the errors.",
    "refusals": "The queue is full: add a replica, or have clients wait longer between attempts.",
    "cache_reset": "Find who calls /reset_prefix_cache, or loads weights or adapters at that time.",
    "cache_too_small": "A larger pool or a tier below it: `kvscope whatif` says what it would "
    "find.",
    "below_block": "Use smaller blocks ({block}): content is only found by whole blocks.",
    "new_content": "Prompts begin differently than before: look for a changed template, system "
    "prompt, salt or tenant. What varies belongs at their end.",
}
_CHUNK = ("max_num_batched_tokens", "chunked_prefill_size")
_POOL = (
    *("gpu_memory_utilization", "num_gpu_blocks_override", "kv_cache_memory_bytes"),
    *("mem_fraction_static", "max_total_tokens", "replicas"),
)
_OPTIONS: dict[Kind, tuple[str, ...]] = {
    "sequence_limit": ("max_num_seqs", "max_running_requests", "replicas"),
    "token_budget": _CHUNK,
    "interference": _CHUNK,
    "out_of_memory": _CHUNK,
    "below_block": ("block_size", "page_size"),
    "pool_full": _POOL,
    "preemptions": (*_POOL, "watermark", "swap_space", "max_num_seqs", "schedule_conservativeness"),
    "cache_too_small": (*_POOL, "kv_offloading_size", "hicache_size"),
}
"""The adviser's options that mend each."""
_FLAGS = {
    "sglang": {
        "sequences": "--max-running-requests",
        "tokens": "--chunked-prefill-size",
        "block": "--page-size",
    }
}
_VLLM = {
    "sequences": "--max-num-seqs",
    "tokens": "--max-num-batched-tokens",
    "block": "--block-size",
}


@dataclass(frozen=True)
class _Stretch:
    """The harm so far, of the last five minutes at most."""

    course: Course
    begin: int
    end: int

    def count(self, name: str) -> float:
        return self.course.total(self.begin, self.end, lambda sums: getattr(sums, name))

    def seconds(self, name: str) -> dict[Kind, float]:
        return by_kind(self.course.parts(self.begin, self.end, lambda sums: getattr(sums, name)))


def clause_of(scene: Scene, course: Course, verdict: Verdict) -> Finding:
    """The verdict in words, with its remedy."""
    end = verdict.last + 1
    is_over = end < len(course.slices) - 1
    stretch = _Stretch(course, max(verdict.begin, end - OVER), end)
    text = "; ".join(_texts(scene, stretch, verdict))
    if verdict.begin <= 1:
        is_whole = len(course.slices) >= 180
        text += " (for half an hour or more)" if is_whole else " (since the start)"
    return Finding(
        kind=verdict.kind,
        began_ns=_began_ns(course, verdict),
        ended_ns=course.begin_ns(end) if is_over else None,
        text=text,
        remedy=_remedy(scene, stretch, verdict.kind),
        evidence=_evidence(stretch, verdict.kind),
    )


def _began_ns(course: Course, verdict: Verdict) -> int:
    counts = {
        "cache_reset": lambda sums: sums.resets,
        "out_of_memory": lambda sums: sums.out_of_memory,
        "preemptions": lambda sums: sums.preemptions,
    }
    count = counts.get(verdict.kind)
    if count is None:
        return course.begin_ns(verdict.begin)
    return course.first_ns(verdict.begin, count)


def _texts(scene: Scene, stretch: _Stretch, verdict: Verdict) -> Iterator[str]:
    kind, count = verdict.kind, stretch.count
    counted = _counted(stretch, kind)
    if counted:
        yield counted
    late, unserved = count("late"), count("unserved")
    seconds = stretch.seconds("late_parts")
    ended = count("first_tokens") + unserved
    if not counted and kind not in seconds:
        seconds, late, unserved = stretch.seconds("standing"), 0, 0
    if unserved:
        yield f"{unserved:,.0f} of {ended:,.0f} requests were given up before their first token"
    if late:
        yield f"{late:,.0f} of {ended:,.0f} first tokens took over {LATE_SECONDS:g} s"
    number = late + unserved
    if counted:
        return
    if number:
        yield _shares(scene, stretch, kind, seconds, number)
    elif kind in seconds:
        mean = seconds[kind] / (10 * (stretch.end - stretch.begin))
        yield f"{words.short(mean)} requests stand {_PARTS[kind]}{_state(scene, stretch, kind)}"
    else:
        seconds = stretch.seconds("late_tokens")
        share = words.share(seconds.get(kind, 0.0) / max(1e-9, sum(seconds.values())))
        yield f"tokens took over {SLOW_TOKEN_SECONDS:g} s each: {share} of it {_PARTS[kind]}"
    tenant = _tenant(scene, kind)
    if tenant:
        yield tenant


def _shares(
    scene: Scene, stretch: _Stretch, kind: Kind, seconds: dict[Kind, float], each: float
) -> str:
    """11.0 of 14.2 s waiting for a sequence slot: 16 of 16 run; and what is nearly as much."""
    whole = sum(seconds.values()) / each
    others = [
        f"{words.seconds(time / each)} {_PARTS[other]}"
        for other, time in seconds.items()
        if other not in (kind, "latency") and time >= _SIMILAR * seconds.get(kind, 0.0)
    ]
    spent = f"{seconds.get(kind, 0.0) / each:.1f} of {whole:.1f} s {_PARTS[kind]}"
    return " and ".join([f"{spent}{_state(scene, stretch, kind)}", *others])


def _state(scene: Scene, stretch: _Stretch, kind: Kind) -> str:
    """The state of what they wait for."""
    levels = [each.levels for each in stretch.course.slices[stretch.begin : stretch.end]]
    limit = scene.settings.get("max_num_seqs") or scene.settings.get("max_running_requests")
    budget = scene.settings.get("max_num_batched_tokens")
    held = _held(stretch)
    if kind == "sequence_limit":
        of = f" of {limit:,.0f}" if limit else ""
        running = max(each.sequences_running for each in levels)
        return f": {running:,}{of} run, {words.share(1 - held)} of the pool is free"
    if kind == "pool_full":
        return f": running requests hold {words.share(held)} of the pool"
    return f": a step has {budget:,.0f}" if kind == "token_budget" and budget else ""


def _counted(stretch: _Stretch, kind: Kind) -> str:
    """The text of harm that is counted; empty: it is timed."""
    count = stretch.count
    asked = max(1.0, count("queried_blocks"))
    hits = words.share(count("hit_blocks") / asked)
    if kind == "out_of_memory":
        number = count("out_of_memory")
        return f"{number:,.0f} step{'' if number == 1 else 's'} ran out of device memory"
    if kind == "failures":
        return f"{count('failed') + count('met_dead'):,.0f} requests failed"
    if kind == "refusals":
        return f"{count('crowded_out'):,.0f} requests were refused, since the queue was full"
    if kind == "preemptions" and count("preemptions"):
        return (
            f"{count('preemptions'):,.0f} preemptions, {count('recomputed_tokens'):,.0f} tokens "
            f"recomputed, {count('stalled_seconds'):,.0f} s of standing still"
        )
    if kind == "slow_steps":
        return slow_text(1 + count("slow_ns") / max(1.0, count("expected_ns")))
    if kind == "cache_reset":
        number = count("resets")
        return "the prefix cache was emptied" + (f", {number:,.0f} times" if number > 1 else "")
    if kind == "below_block":
        return f"the prefix cache found {hits} of the blocks: prompts end within their first block"
    if kind == "cache_too_small":
        gone = words.share(count("evicted_blocks") / asked)
        return f"the prefix cache found {hits} of the blocks: {gone} had been evicted"
    if kind == "new_content":
        return f"the prefix cache found {hits} of the blocks: the rest was never seen before"
    return ""


def _tenant(scene: Scene, kind: Kind) -> str:
    """One of several that holds most of what is short: slots, blocks, or prompts to compute."""
    measure = {"sequence_limit": 0, "pool_full": 1, "preemptions": 1}.get(kind, 2)
    of_all = sum(sums[measure] for sums in scene.held.values())
    if len(scene.held) < 2 or not of_all:
        return ""
    name = max(scene.held, key=lambda each: scene.held[each][measure])
    share = scene.held[name][measure] / of_all
    what = ("the slots", "the blocks", "the prompt tokens computed")[measure]
    if not _MOST <= share < _ALL or name == NOBODY:
        return ""
    return f"tenant {name} has {words.share(share)} of {what}"


def _remedy(scene: Scene, stretch: _Stretch, kind: Kind) -> str:
    """The adviser's proposal for it, if it makes one."""
    for proposal in scene.proposals:
        grows = proposal.proposed > (proposal.current or 0.0)
        must_grow = proposal.option in _POOL or kind in ("sequence_limit", "token_budget")
        helps = grows or not must_grow
        if helps and proposal.option in _OPTIONS.get(kind, ()):
            return f"{proposal.text[0].upper()}{proposal.text[1:]}."
    if kind == "sequence_limit" and _held(stretch) > _FULL:
        kind = "pool_full"  # more of them would not fit
    faster = None if scene.facts is None else speedup(scene.facts)
    if kind == "token_budget" and faster is not None and faster < MIN_FASTER:
        kind = "prefill"  # it computes prompts as fast as it can
    return _REMEDIES[kind].format(**_FLAGS.get(scene.server, _VLLM))


def _held(stretch: _Stretch) -> float:
    """The share of the pool that running requests held most of the time."""
    levels = [each.levels for each in stretch.course.slices[stretch.begin : stretch.end]]
    return median(each.active / max(1, each.usable) for each in levels)


def _evidence(stretch: _Stretch, kind: Kind) -> dict[str, float]:
    seconds = stretch.seconds("late_parts")
    evidence = {"late": stretch.count("late"), "unserved": stretch.count("unserved")}
    if kind in seconds:
        evidence |= {"seconds": seconds[kind], "of_seconds": sum(seconds.values())}
    if kind == "prefill":
        missed = stretch.course.parts(stretch.begin, stretch.end, lambda sums: sums.missed_blocks)
        evidence |= {
            f"missed_{cause}": number for cause, number in zip(MISSED, missed, strict=True)
        }
    return evidence
