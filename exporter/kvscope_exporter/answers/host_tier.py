"""A tier in host memory below the pool: what one of each size would bring, and what it would copy.

Such a tier, as vLLM's own offloading is, gets a copy of every full block when it is computed and
evicts in the order of releases: a tier of S blocks holds what a pool of S blocks would. So the
curve of pools that are larger than the present one is the curve of tiers.
"""

import msgspec

from kvscope_exporter.state import Ledger, LoadWindow, Tiers
from kvscope_exporter.state.cache.curve import Curve, Point


class HostTier(msgspec.Struct, frozen=True, kw_only=True):
    """One size of a tier, compared with none; per second over the window."""

    size_blocks: int
    size_bytes: int
    hit_ratio: float | None
    """Blocks found in the pool or the tier over queried blocks; None: there were no queries."""
    gained_tokens_per_second: float
    """Prompt tokens that are loaded instead of being computed."""
    loaded_bytes_per_second: float
    """Copied into the pool for them."""
    stored_bytes_per_second: float | None
    """Copied out of the pool: whatever is computed and fills a block."""
    is_lower_bound: bool
    """For a part of the window the content of such a tier was not known yet; the bytes stored are
    then an upper bound."""


class Offloading(msgspec.Struct, frozen=True, kw_only=True):
    """The question whether offloading pays, besides the sizes; None: not known."""

    bytes_per_token: int
    """K and V of all layers."""
    computed_tokens_per_second: float | None
    """Prompt tokens over the time of all steps of the last five minutes, decoding included."""
    pays_above_bytes_per_second: float | None
    """Loading is faster than computing where copies into the pool are faster than this."""
    measured_load_bytes_per_second: float | None
    """Bytes loaded from the present tier over the time that took; None: there is no tier, or
    nothing was loaded."""
    tier_blocks: int | None
    """Size of the present tier."""


def host_tiers(curve: Curve, ledger: Ledger) -> list[HostTier]:
    """By ascending size, from the pool's own size on; empty if blocks have no bytes."""
    points = [p for p in curve.points if p.capacity_blocks is not None and p.scale >= 1]
    if not points or not ledger.bytes_per_block or not curve.seconds:
        return []
    return [_tier(point, points[0], curve, ledger) for point in points]


def offloading(ledger: Ledger, recent: LoadWindow, tiers: Tiers) -> Offloading | None:
    """None: no tensors back the pool."""
    if not ledger.bytes_per_block:
        return None
    per_token = ledger.bytes_per_block // ledger.block_size
    _, load = recent.window()
    pace = load.prefill_tokens / load.busy_ns * 1e9 if load.busy_ns else None
    copied, took_ns = tiers.copied.get(("host", "load"), (0, 0))
    present = tiers.capacities.get("host")
    return Offloading(
        bytes_per_token=per_token,
        computed_tokens_per_second=pace,
        pays_above_bytes_per_second=None if pace is None else pace * per_token,
        measured_load_bytes_per_second=copied / took_ns * 1e9 if took_ns else None,
        tier_blocks=None if present is None else present.num_blocks,
    )


def _tier(point: Point, pool: Point, curve: Curve, ledger: Ledger) -> HostTier:
    assert point.capacity_blocks is not None
    gained = point.hit_blocks - pool.hit_blocks
    per_second = ledger.bytes_per_block / curve.seconds
    cached = curve.cached_blocks
    return HostTier(
        size_blocks=point.capacity_blocks,
        size_bytes=point.capacity_blocks * ledger.bytes_per_block,
        hit_ratio=point.hit_blocks / curve.queried_blocks if curve.queried_blocks else None,
        gained_tokens_per_second=gained * ledger.block_size / curve.seconds,
        loaded_bytes_per_second=gained * per_second,
        # Content that is loaded is cached in the pool as well, and is in the tier already.
        stored_bytes_per_second=None if cached is None else max(0, cached - gained) * per_second,
        is_lower_bound=point.is_lower_bound,
    )
