"""The answer to "whose fault are the misses?", of the fleet as a whole, as one document."""

import time
from collections.abc import Sequence

import msgspec

from kvscope_exporter.fleet.fleet import Fleet, ListedReplica
from kvscope_exporter.fleet.proposals import Proposal, proposals
from kvscope_exporter.fleet.replica import Space

ENOUGH = 0.95
"""Share of all possible hits for which a tier is called large enough."""
LEAST_BLOCKS = 1000
"""Blocks asked for, below which shares say little."""


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    blocks: int
    bytes: int | None
    hit_blocks: int
    """With a tier of that size behind all pools, own hits included."""


class ReplicaAnswer(msgspec.Struct, frozen=True, kw_only=True):
    sidecar: str
    server: str
    engine: str
    model_name: str
    state: str
    reason: str
    own_blocks: int
    best_blocks: int
    asked_blocks: int


class SpaceAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Sums since the process began."""

    model_name: str
    name_space: str
    replicas: int
    block_tokens: int
    block_bytes: int | None
    own_blocks: int
    best_blocks: int
    anywhere_blocks: int
    seen_blocks: int
    asked_blocks: int
    standard_error: float | None
    """The largest of a step's share of the blocks asked for; 0: all were folded; None: of a sample,
    and too little was asked for to say."""
    pool_blocks: int
    distinct_blocks: int | None
    duplicate_blocks: int | None
    """None: a sample does not say."""
    tiers: list[Tier]
    enough_blocks: int | None
    """The smallest simulated tier with 95 % of all possible hits; None: none of them has that."""
    sentence: str
    proposals: list[Proposal]
    """The largest gain first; empty: too little was asked for, or nothing is worth its price."""


class FleetAnswer(msgspec.Struct, frozen=True, kw_only=True):
    one_of: int
    """One of this number of conversations is folded, and counts as often; 1: all are."""
    spaces: list[SpaceAnswer]
    replicas: list[ReplicaAnswer]
    apart: list[str]
    """Models of which some replicas' names cannot be compared with others', and what differs."""


def fleet_answer(fleet: Fleet) -> FleetAnswer:
    """For any thread."""
    spaces = fleet.read(lambda spaces: [_space(space) for space in spaces])
    apart = fleet.read(_apart)
    return FleetAnswer(
        one_of=fleet.one_of,
        spaces=spaces,
        replicas=[_replica(listed) for listed in fleet.replicas()],
        apart=apart,
    )


def _replica(listed: ListedReplica) -> ReplicaAnswer:
    sidecar, server, engine = listed.key
    return ReplicaAnswer(
        sidecar=sidecar,
        server=server,
        engine=engine,
        model_name=listed.model_name,
        state=listed.state,
        reason=listed.reason,
        own_blocks=listed.steps.own,
        best_blocks=listed.steps.best,
        asked_blocks=listed.steps.asked,
    )


def _space(space: Space) -> SpaceAnswer:
    totals, held = space.waterfall.totals, space.resident()
    size = space.bytes_per_block
    tiers = [
        Tier(blocks=blocks, bytes=None if size is None else blocks * size, hit_blocks=hits)
        for blocks, hits in space.waterfall.asked.hits_by_size()
    ]
    large = (tier.blocks for tier in tiers if tier.hit_blocks >= ENOUGH * totals.seen)
    enough = next(large, None) if totals.seen else None
    proposed = proposals(
        totals,
        tiers=[(tier.blocks, tier.hit_blocks) for tier in tiers],
        enough_blocks=enough,
        block_tokens=space.block_size,
        block_bytes=size,
        pool_blocks=space.pool_blocks,
        replicas=space.replicas,
        seconds=(time.monotonic_ns() - space.began_ns) / 1e9,
    )
    return SpaceAnswer(
        model_name=space.model_name,
        name_space=space.name_space[:12],
        replicas=space.replicas,
        block_tokens=space.block_size,
        block_bytes=size,
        own_blocks=totals.own,
        best_blocks=totals.best,
        anywhere_blocks=totals.anywhere,
        seen_blocks=totals.seen,
        asked_blocks=totals.asked,
        standard_error=space.waterfall.standard_error(),
        pool_blocks=space.pool_blocks,
        distinct_blocks=None if held is None else held.distinct,
        duplicate_blocks=None if held is None else held.duplicate,
        tiers=tiers,
        enough_blocks=enough,
        sentence=sentence_of(space),
        proposals=proposed if totals.asked >= LEAST_BLOCKS else [],
    )


def sentence_of(space: Space) -> str:
    """The largest loss in words."""
    own, best, anywhere, seen, asked = space.waterfall.totals
    if asked < LEAST_BLOCKS:
        return f"Only {asked} blocks have been asked for so far: too few to say."
    error = space.waterfall.standard_error()
    losses = {
        "routing loses up to": best - own,
        "not fetching from other replicas loses up to": anywhere - best,
        "the size of the pools loses": seen - anywhere,
    }
    cause, blocks = max(losses.items(), key=lambda loss: loss[1])
    possible = seen - own
    found = f"The replicas find {own / asked:.1%} of the blocks asked for"
    if error is None:
        found = f"By a sample too small to say how far off it is, {found[0].lower()}{found[1:]}"
    elif error:
        found = f"By a sample, with a standard error of {error:.1%}, {found[0].lower()}{found[1:]}"
    if possible < 0.01 * asked:
        return f"{found}, and hardly more was possible: the rest is new content."
    return (
        f"{found}; {possible / asked:.1%} more had been asked for before: {cause} "
        f"{blocks / asked:.1%}."
    )


def _apart(spaces: Sequence[Space]) -> list[str]:
    by_model: dict[str, list[Space]] = {}
    for space in spaces:
        if space.replicas:
            by_model.setdefault(space.model_name, []).append(space)
    return [
        f"{model}: {_difference(several)}"
        for model, several in by_model.items()
        if len(several) > 1
    ]


def _difference(spaces: Sequence[Space]) -> str:
    counts = ", ".join(f"{space.replicas} in {space.name_space[:12]}" for space in spaces)
    sizes = sorted({space.block_size for space in spaces})
    algorithms = sorted({space.hash_algorithm or "unknown" for space in spaces})
    if len(sizes) > 1:
        why = f"their blocks have {' and '.join(map(str, sizes))} tokens: set the same block size"
    elif len(algorithms) > 1:
        why = f"they hash by {' and '.join(algorithms)}: set the same --prefix-caching-hash-algo"
    else:
        why = "their hashes begin differently: set the same PYTHONHASHSEED for all of them"
    return f"names cannot be compared ({counts}): {why}"
