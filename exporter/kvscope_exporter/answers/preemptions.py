"""The cost of preemption, and the latest preemptions with the cost of each."""

from collections.abc import Mapping

import msgspec

from kvscope_events.vocabulary import Tier
from kvscope_exporter.answers.question import QueryContext, Question
from kvscope_exporter.clock import Clock
from kvscope_exporter.state import Preemption, Steps
from kvscope_exporter.state.preemption import UNATTRIBUTED, Costs, Kind, Victim
from kvscope_exporter.state.victim import State


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of all preemptions of one mode and cause.

    `discarded_tokens` is the sum of the tokens found, swapped, recomputed, abandoned, lost and
    waiting.
    """

    mode: str
    cause: str
    preemptions: int
    discarded_tokens: int
    """Tokens whose KV had been computed, or found, when their sequence was preempted."""
    found_tokens: int
    """Discarded tokens that the cache still held, or a connector loaded, when their sequence
    resumed."""
    found_by_tier: dict[str, int]
    """The same by the tier that supplied them; other: the connector's medium is not known."""
    swapped_tokens: int
    """Discarded tokens that were copied back from the host when their sequence resumed."""
    recomputed_tokens: int
    """Discarded tokens that the cache no longer held, so that they are recomputed."""
    abandoned_tokens: int
    """Discarded tokens of sequences that ended before they resumed."""
    lost_tokens: int
    """Discarded tokens of sequences that were waiting when a part of the stream was lost."""
    waiting_tokens: int
    """Discarded tokens of sequences that are still waiting."""
    stalled_seconds: float
    """Time until the sequences resumed or ended, without waiting ones."""


class UnattributedResumptions(msgspec.Struct, frozen=True, kw_only=True):
    """Resumptions whose preemption was not seen, so mode and cause are not known."""

    found_tokens: int
    swapped_tokens: int
    recomputed_tokens: int
    stalled_seconds: float


class Shortage(msgspec.Struct, frozen=True, kw_only=True):
    """The running sequence that the pool could not serve, for which the victim was preempted."""

    sequence: int
    wanted_blocks: int
    available_blocks: int


class Taker(msgspec.Struct, frozen=True, kw_only=True):
    """A sequence that got blocks of the victim; None: not reported."""

    sequence: int | None
    blocks: int


class OnePreemption(msgspec.Struct, frozen=True, kw_only=True):
    """One preemption; None: unknown, or not yet known."""

    time_seconds: float
    """Unix time of its step."""
    ago_seconds: float
    sequence: int
    request: int
    mode: str
    cause: str
    state: State
    """Fate of the victim; lost: it was in a lost part of the stream."""
    age_seconds: float
    """Time since the victim was last admitted."""
    discarded_tokens: int
    found_tokens: int | None
    loaded_tokens: int | None
    """The part of them that a tier below the pool supplied."""
    swapped_tokens: int | None
    recomputed_tokens: int | None
    stalled_seconds: float | None
    """Time until it resumed; if it ended first, until that step."""
    swap_estimate_seconds: float | None
    """The engine's estimate of the time for swapping; None: it did not have to choose."""
    recompute_estimate_seconds: float | None
    """The same for recomputing."""
    blocks: int
    """References that it gave back."""
    kept_blocks: int | None
    """Its blocks whose content is still there, or was when it resumed or ended."""
    wanted_by: Shortage | None
    taken_by: list[Taker] | None
    """Sequences that were the first to get one of its blocks while it waited, in order of time.
    """
    taken_by_further_blocks: int | None
    """Blocks taken by further sequences; None if `taken_by` is."""


class Preemptions(msgspec.Struct, frozen=True, kw_only=True):
    """Sums since the exporter began to watch this engine, without gaps."""

    bill: list[Bill]
    """One for each mode and cause."""
    unattributed: UnattributedResumptions | None
    """None: no such resumptions."""
    gaps: int
    """Number of gaps in the stream."""
    computed_tokens: int
    """Tokens computed in all steps."""
    recomputed_ratio: float | None
    """Recomputed tokens, the unattributed included, over the computed; None: nothing computed."""
    preemptions: list[OnePreemption]
    """The last 100, the newest first."""


def _answer(asked: QueryContext) -> Preemptions:
    preemption, steps = asked.folds[Preemption], asked.folds[Steps]
    computed = steps.prefill_tokens + steps.decode_tokens
    recomputed = sum(costs.recomputed_tokens for costs in preemption.costs.values())
    unattributed = preemption.costs.get(UNATTRIBUTED)
    return Preemptions(
        bill=[
            _bill(kind, costs, preemption.waiting_tokens(kind))
            for kind, costs in preemption.costs.items()
            if kind != UNATTRIBUTED
        ],
        unattributed=None if unattributed is None else _unattributed(unattributed),
        gaps=preemption.num_gaps,
        computed_tokens=computed,
        recomputed_ratio=recomputed / computed if computed else None,
        preemptions=[
            _one(victim, preemption.num_kept(victim), asked.clock)
            for victim in reversed(preemption.history)
        ],
    )


def _bill(kind: Kind, costs: Costs, waiting_tokens: int) -> Bill:
    mode, cause = kind
    return Bill(
        mode=mode,
        cause=cause,
        preemptions=costs.preemptions,
        discarded_tokens=costs.discarded_tokens,
        found_tokens=costs.found_tokens,
        found_by_tier=_by_tier(costs.found_tokens, costs.loaded_tokens),
        swapped_tokens=costs.swapped_tokens,
        recomputed_tokens=costs.recomputed_tokens,
        abandoned_tokens=costs.abandoned_tokens,
        lost_tokens=costs.lost_tokens,
        waiting_tokens=waiting_tokens,
        stalled_seconds=costs.stalled_ns / 1e9,
    )


def _by_tier(found: int, loaded: Mapping[Tier, int]) -> dict[str, int]:
    return {"device": found - sum(loaded.values())} | {tier: loaded[tier] for tier in loaded}


def _unattributed(costs: Costs) -> UnattributedResumptions:
    return UnattributedResumptions(
        found_tokens=costs.found_tokens,
        swapped_tokens=costs.swapped_tokens,
        recomputed_tokens=costs.recomputed_tokens,
        stalled_seconds=costs.stalled_ns / 1e9,
    )


def _one(victim: Victim, kept_blocks: int | None, clock: Clock) -> OnePreemption:
    event, resumed, shortage = victim.preempted, victim.resumed, victim.wanted_by
    taken = victim.taken_by
    return OnePreemption(
        time_seconds=victim.wall_ns / 1e9 or clock.wall_seconds(victim.arrived_ns),
        ago_seconds=max(0, clock.now().monotonic_ns - victim.arrived_ns) / 1e9,
        sequence=event.sequence,
        request=event.request,
        mode=event.mode,
        cause=event.cause,
        state=victim.state,
        age_seconds=event.age_ns / 1e9,
        discarded_tokens=event.discarded_tokens,
        found_tokens=None if resumed is None else resumed.cached_tokens,
        loaded_tokens=None if resumed is None else resumed.loaded_tokens,
        swapped_tokens=None if resumed is None else resumed.swapped_tokens,
        recomputed_tokens=None if resumed is None else resumed.recompute_tokens,
        stalled_seconds=_seconds(victim.stalled_ns),
        swap_estimate_seconds=_seconds(event.swap_cost_ns),
        recompute_estimate_seconds=_seconds(event.recompute_cost_ns),
        blocks=event.blocks,
        kept_blocks=kept_blocks,
        wanted_by=None
        if shortage is None
        else Shortage(
            sequence=shortage.sequence,
            wanted_blocks=shortage.wanted,
            available_blocks=shortage.available,
        ),
        taken_by=None
        if taken is None
        else [Taker(sequence=sequence, blocks=blocks) for sequence, blocks in taken.items()],
        taken_by_further_blocks=None if taken is None else victim.taken_by_further,
    )


def _seconds(interval_ns: int | None) -> float | None:
    return None if interval_ns is None else interval_ns / 1e9


PREEMPTIONS: Question[Preemptions] = Question(
    name="preemptions",
    summary="Cost of preemption, and the last preemptions: victim, cost, and the sequences that "
    "took the blocks.",
    events=(
        "PoolCreated",
        "AllocationFailed",
        "BlocksAllocated",
        "BlocksReleased",
        "RequestPreempted",
        "RequestResumed",
        "SequenceFinished",
        "StepCompleted",
    ),
    counted=("RequestPreempted", "RequestResumed", "SequenceFinished", "StepCompleted"),
    folds=(Preemption, Steps),
    read=_answer,
)
