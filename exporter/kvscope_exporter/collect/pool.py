"""Families of the pool: from the ledger, the churn, the groups and the forecast."""

from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from kvscope_events.events import Hello
from kvscope_exporter.collect.families import Families
from kvscope_exporter.state import Churn, Exhaustion, Groups, Ledger
from kvscope_exporter.state.capacity import block_tokens


def collect_exhaustion(
    families: Families, exhaustion: Exhaustion, _engine: Hello
) -> Iterator[Family]:
    committed = exhaustion.committed_blocks
    if committed is not None:
        yield families.single("kvscope_kv_committed_blocks", committed)
    seconds = exhaustion.seconds_to_exhaustion
    if seconds is not None:
        yield families.single("kvscope_kv_time_to_exhaustion_seconds", seconds)
    probabilities = exhaustion.probabilities
    if probabilities:
        by_horizon = {str(horizon): value for horizon, value in probabilities.items()}
        yield families.column("kvscope_kv_exhaustion_probability", by_horizon)


def collect_pool(families: Families, ledger: Ledger, _engine: Hello) -> Iterator[Family]:
    """The state of the pool; no families while it is unknown."""
    if not ledger.known:
        return
    yield families.column(
        "kvscope_kv_blocks",
        {
            "active": ledger.num_active,
            "cached": ledger.num_cached,
            "free": ledger.num_free,
            "reserved": ledger.reserved,
        },
    )
    yield families.single("kvscope_kv_capacity_blocks", ledger.num_blocks)
    yield families.single("kvscope_kv_usable_blocks", ledger.num_usable)
    tokens = block_tokens(ledger)
    if tokens is not None:
        yield families.single("kvscope_kv_block_size_tokens", tokens)
    if ledger.bytes_per_block:
        yield families.single("kvscope_kv_block_size_bytes", ledger.bytes_per_block)
    if ledger.num_usable:
        yield families.single("kvscope_kv_active_ratio", ledger.active_ratio)
        yield families.single("kvscope_kv_resident_ratio", ledger.resident_ratio)
    yield families.single("kvscope_kv_ledger_imbalance_blocks", ledger.imbalance)
    for name, blocks in (
        ("kvscope_kv_shared_blocks", ledger.num_shared),
        ("kvscope_kv_deduplicated_blocks", ledger.num_deduplicated),
    ):
        if blocks is not None:
            yield families.single(name, blocks)
    held = ledger.held
    if held is not None:
        yield families.column("kvscope_kv_held_blocks", dict(held.items()))
        since_ns = ledger.holds.oldest_since_ns
        if since_ns is not None:
            yield families.single("kvscope_kv_oldest_hold_seconds", families.age(since_ns))
    if ledger.swap_blocks:
        used = min(ledger.swap_used, ledger.swap_blocks)
        yield families.column(
            "kvscope_kv_swap_blocks", {"used": used, "free": ledger.swap_blocks - used}
        )


def collect_churn(families: Families, churn: Churn, _engine: Hello) -> Iterator[Family]:
    """Counters, without events lost in gaps."""
    yield families.column("kvscope_kv_block_evictions_total", churn.evictions)
    yield families.single("kvscope_kv_block_copies_total", churn.copies)
    yield families.single("kvscope_kv_allocation_failures_total", churn.allocation_failures)


def collect_groups(families: Families, groups: Groups, _engine: Hello) -> Iterator[Family]:
    """Blocks by kind and state, while known."""
    if groups.known:
        yield families.table("kvscope_kv_group_blocks", groups.blocks)
