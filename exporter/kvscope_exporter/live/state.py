"""An engine's pool, sums and single blocks for its live view, read from its folds."""

from collections.abc import Iterable
from typing import Literal

from kvscope_events.events import BlockHash
from kvscope_exporter.live.documents import BlockDocument, Figures, Pool
from kvscope_exporter.live.following import LiveFold
from kvscope_exporter.live.life import is_hit
from kvscope_exporter.live.named import has_names
from kvscope_exporter.state import Cache, Ledger, Preemption, Requests, Steps, Tiers
from kvscope_exporter.state.churn import Churn
from kvscope_exporter.targets.target import Target

MapKind = Literal["blocks", "names", "counted", "unknown"]
LIFE_EVENTS = 100


def kind_of(target: Target) -> MapKind:
    """The kind of map that can be drawn of this engine now; see `Pool.map`."""
    hello, is_known = target.hello, target.source.state_known
    if target.is_content:
        is_known = is_known and target.folds[Tiers].tiers["device"].known
        return "names" if is_known else "unknown"
    ledger = target.folds[Ledger]
    if hello is None or "PoolCounted" not in hello.tells:
        return "blocks" if ledger.known and is_known else "unknown"
    if not has_names(hello):
        return "counted"
    return "names" if is_known and ledger.known and target.folds[Cache].known else "unknown"


def names_of(target: Target) -> Iterable[tuple[BlockHash, int]]:
    """The findable names of an engine whose map is one of names, and how many blocks have each."""
    if target.is_content:
        return target.folds[Tiers].tiers["device"].blocks.items()
    resident = target.folds[Cache].resident
    return ((name, resident.copies(name)) for name in resident.names)


def references_of(target: Target, name: BlockHash) -> int:
    """Running sequences that refer to this name; 0 where the stream knows no sequences."""
    return 0 if target.is_content else target.folds[Cache].counted.references(name)


def pool_of(target: Target, kind: MapKind, num_names: int | None, block_size: int) -> Pool:
    """block_size: of a stream that knows no pool."""
    if target.is_content:
        return Pool(map=kind, names=num_names, block_size=block_size)
    ledger = target.folds[Ledger]
    is_known = ledger.known and target.source.state_known
    return Pool(
        map=kind,
        names=num_names,
        num_blocks=ledger.num_blocks,
        reserved=ledger.reserved,
        block_size=ledger.block_size,
        bytes_per_block=ledger.bytes_per_block,
        active=ledger.num_active if is_known else None,
        cached=ledger.num_cached if is_known else None,
        free=ledger.num_free if is_known else None,
        imbalance=ledger.imbalance if is_known else None,
    )


def figures_of(target: Target) -> Figures | None:
    """None: the stream knows neither steps nor requests."""
    if target.is_content:
        return None
    folds = target.folds
    requests, steps, cache = folds[Requests], folds[Steps], folds[Cache]
    costs = folds[Preemption].costs.values()
    missed = cache.missed_blocks
    return Figures(
        waiting=max(0, requests.sequences_waiting),
        running=max(0, requests.sequences_running),
        steps=sum(steps.duration.counts),
        prefill_tokens=steps.prefill_tokens,
        decode_tokens=steps.decode_tokens,
        preemptions=sum(cost.preemptions for cost in costs),
        recomputed_tokens=sum(cost.recomputed_tokens for cost in costs),
        queried_blocks=cache.queried_blocks["first"],
        hit_blocks=cache.hit_blocks["first"],
        missed_evicted_blocks=missed.get("evicted", 0) + missed.get("forgotten", 0),
        evictions=sum(folds[Churn].evictions.values()),
        regret_tokens=cache.regret.tokens,
    )


def block_of(target: Target, following: LiveFold, number: int) -> BlockDocument | None:
    """A block, or the content of a cell, and the last events about it; None: not known."""
    named, name = following.named, None
    if named.is_followed:
        if kind_of(target) != "names" or not 0 <= number < len(named.names):
            return None
        name = named.names[number]
        references = 0 if name is None else references_of(target, name)
        owners = [] if name is None else named.owners_of(name)
        born_ns = named.stored_ns[number]
        events = [] if name is None else following.lives.of(name)
    else:
        ledger = None if target.is_content else target.folds[Ledger]
        if ledger is None or ledger.is_counted or not 0 <= number < len(ledger.blocks.ref_counts):
            return None
        times = target.folds[Cache].blocks.written_ns
        name, references = ledger.blocks.hashes[number], ledger.blocks.ref_counts[number]
        owners = following.sequences.owners_of(number)
        born_ns = times[number] if number < len(times) else -1
        events = following.lives.of(number)
    return BlockDocument(
        id=number,
        name=None if name is None else name.hex(),
        references=references,
        owners=owners,
        born_ms=born_ns // 1_000_000 if born_ns > 0 else None,
        hits=sum(is_hit(event) for _, event in events),
        events=[
            (
                time_ns // 1_000_000,
                type(event).__name__,
                getattr(event, "sequence", None),
                getattr(event, "cause", ""),
            )
            for time_ns, event in events[:LIFE_EVENTS]
        ],
    )
