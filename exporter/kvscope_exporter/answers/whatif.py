"""Hits of the prefix cache in pools of other sizes, and the memory of these."""

import math

import msgspec

from kvscope_exporter.answers.gather import whatif_of
from kvscope_exporter.answers.host_tier import HostTier, Offloading, host_tiers, offloading
from kvscope_exporter.answers.question import QueryContext, Question, UnknownError
from kvscope_exporter.state import Cache, DeviceMemory, Ledger, LoadWindow, Tiers
from kvscope_exporter.state.cache.curve import Curve, Point
from kvscope_exporter.state.cache.self_check import Objection
from kvscope_exporter.state.simulation import Shadows
from kvscope_exporter.state.simulation.budget import MOST_OF_CORE

_WINDOWS: tuple[tuple[str, float | None], ...] = (("5m", 300), ("1h", 3600), ("start", None))
_NOT_MODELLED = [
    "A pool smaller than what the running requests hold at their peak: requests would wait or be "
    "preempted.",
    "Requests that come faster, or more of them, because answers come sooner.",
    "Eviction in another order than the one in which blocks were released: the self-check shows "
    "such an engine.",
    "Lookups of sequences that resume after a preemption: they count nowhere here.",
    "The effect on latency: fewer tokens are computed, and that is all this predicts.",
]
_OF_ONE_KIND = [
    "Shorter running times through more hits, which release blocks earlier: on a trace of "
    "conversations the error is 0.0002 of the hit ratio at most.",
    "Content that two sequences computed at the same time: its second block stands in the way at "
    "every size, and hits of larger sizes come out too low, by up to 0.21 points in our trials.",
    "Requests that wait: a larger pool would admit them earlier, and equal beginnings that are "
    "computed at the same time are not found. While some wait, hits of larger sizes are at most "
    "these.",
    "The old copy of a block that is computed again for a drafter such as EAGLE: it takes room, so "
    "that hits come out up to about 0.5 points too high.",
]
"""Limits of a computed curve, for layers of one kind."""
_OF_GROUPS = [
    "Requests admitted earlier or later than they were: every size admits them when the engine "
    "did. Exact for one request after another and for prompts of one chunk. While some wait, hits "
    "of larger sizes are at most these: in our trials 0 to 12 % of them were not found by pools "
    "in which all ran at once, and up to half by pools that were still too small for that.",
    "Speculative decoding, and loads from a tier below the pool or a connector.",
]
"""Limits of simulated pools, for layers of several kinds."""
_DISAGREES = (
    "a simulated pool of the present size did not find what the engine found in the last five "
    "minutes, within 1 point of the blocks looked up, or fewer than 100 blocks were looked up: its "
    "groups of layers are simulated, and other sizes are shown only while that agrees"
)
_OBJECTIONS: dict[Objection, str] = {
    "policy": (
        "the prefix cache's eviction policy is not LRU, and the hits of other sizes are known for "
        "that one only"
    ),
    "order": (
        "the prediction for the present size differed from what the engine found in the last five "
        "minutes by more than 1 point of the blocks looked up: it evicts in another order than "
        "that of the releases, or its lookups leave out more than one block for a drafter"
    ),
    "queue": (
        "in the last five minutes requests waited so long that the hits of some size are uncertain "
        "by more than 1 point of the blocks looked up: this engine renews what waiting requests "
        "ask for, and what a pool of another size would have kept for them is not known"
    ),
}


class WhatIfPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One size of the pool; None: unknown."""

    scale: float | None
    """Relative to the present size, which is 1; None: infinite, nothing is ever lost, not even by a
    reset, since the exporter began to watch."""
    capacity_blocks: int | None
    """Without the reserved blocks; None: infinite."""
    capacity_bytes: int | None
    device_ratio: float | None
    """The pool's share of the device's memory."""
    hit_ratio: float | None
    """Hit blocks over queried blocks; None: there were no queries."""
    hit_blocks: int
    queried_blocks: int
    """Full blocks that could have been found; the same at every size."""
    saved_tokens_per_second: float | None
    """Prompt tokens found instead of being computed, without those that a tier below the pool or a
    connector supplied anyway."""
    is_lower_bound: bool
    """For a part of the time the content of such a pool was not known yet."""
    is_upper_bound: bool = False
    """In the last five minutes requests waited, which a larger pool would have admitted earlier:
    equal beginnings that are computed at the same time are not found."""
    known_seconds: float | None
    """Time for which it has been known; None: not yet."""


class WhatIfCurve(msgspec.Struct, frozen=True, kw_only=True):
    """First admissions of one window; unknown sizes have no point."""

    window: str
    """5m, 1h, or start: since the exporter knows this pool, without a gap since."""
    seconds: float
    """Length of the window up to now."""
    points: list[WhatIfPoint]
    """By ascending size."""
    host_tiers: list[HostTier]
    """Tiers in host memory below the present pool, by ascending size. Empty: not known, as for
    several groups of layers."""


class SelfCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The prediction for the present size compared with the engine's hits, since the start."""

    queried_blocks: int
    error_blocks: int
    """Errors of the prediction in blocks, summed over lookups."""
    error_ratio: float | None
    """None: there were no queries."""


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """The curves of one engine."""

    block_tokens: int
    pool_blocks: int
    """The present size, without the reserved blocks."""
    pool_bytes: int | None
    device_bytes: int | None
    """Memory of the pool's device."""
    curves: list[WhatIfCurve]
    offloading: Offloading | None
    """None: no tensors back the pool."""
    self_check: SelfCheck
    not_modelled: list[str]
    """Assumptions, as sentences."""


def _answer(asked: QueryContext) -> WhatIf:
    cache, ledger = asked.folds[Cache], asked.folds[Ledger]
    whatif = whatif_of(asked.folds)
    if asked.hello.enable_prefix_caching is False:
        raise UnknownError("this engine runs without a prefix cache")
    if isinstance(whatif, Shadows):
        _check_simulation(whatif)
    elif not whatif.known:
        raise UnknownError("the pool is not known yet, or its layers have a sliding window")
    device_bytes = _device_bytes(asked)
    now_ns = cache.now_ns(asked.clock.now().monotonic_ns)
    _, load = asked.folds[LoadWindow].window()
    is_crowded = load.is_crowded
    curves = []
    for window, seconds in _WINDOWS:
        curve = whatif.curve(seconds, now_ns)
        if curve is None:  # the simulation goes on meanwhile
            objection = None if isinstance(whatif, Shadows) else whatif.objection
            raise UnknownError(_OBJECTIONS[objection] if objection else _DISAGREES)
        points = [_point(point, curve, ledger, device_bytes, is_crowded) for point in curve.points]
        tiers = [] if isinstance(whatif, Shadows) else host_tiers(curve, ledger)
        curves.append(
            WhatIfCurve(window=window, seconds=curve.seconds, points=points, host_tiers=tiers)
        )
    queried, error = whatif.queried_blocks, whatif.error_blocks
    return WhatIf(
        block_tokens=ledger.block_size,
        pool_blocks=whatif.usable_blocks,
        pool_bytes=whatif.usable_blocks * ledger.bytes_per_block or None,
        device_bytes=device_bytes,
        curves=curves,
        offloading=offloading(ledger, asked.folds[LoadWindow], asked.folds[Tiers]),
        self_check=SelfCheck(
            queried_blocks=queried,
            error_blocks=error,
            error_ratio=error / queried if queried else None,
        ),
        not_modelled=[
            *(
                [*_of_share(whatif.share), *_OF_GROUPS]
                if isinstance(whatif, Shadows)
                else _OF_ONE_KIND
            ),
            *_NOT_MODELLED,
        ],
    )


def _of_share(share: float) -> list[str]:
    if share == 1:
        return []
    return [
        f"One in {1 / share:.0f} conversations is simulated, since all of them would take over "
        f"{100 * MOST_OF_CORE:.0f} % of a core: sizes other than the present one are estimates."
    ]


def _check_simulation(shadows: Shadows) -> None:
    if not shadows.known:
        raise UnknownError(
            "the pool is not known yet, or has groups that are not simulated: a sliding window or "
            "a state without full attention beside it, drafters, blocks of different lengths"
        )
    if not shadows.agrees:
        raise UnknownError(_DISAGREES)


def _point(
    point: Point, curve: Curve, ledger: Ledger, device_bytes: int | None, is_crowded: bool
) -> WhatIfPoint:
    size = point.capacity_blocks
    size_bytes = None if size is None else size * ledger.bytes_per_block or None
    queried, seconds = point.queried_blocks, curve.seconds
    return WhatIfPoint(
        scale=None if math.isinf(point.scale) else point.scale,
        capacity_blocks=size,
        capacity_bytes=size_bytes,
        device_ratio=size_bytes / device_bytes if size_bytes and device_bytes else None,
        hit_ratio=point.hit_blocks / queried if queried else None,
        hit_blocks=point.hit_blocks,
        queried_blocks=queried,
        saved_tokens_per_second=(
            (point.hit_blocks - point.loaded_blocks) * ledger.block_size / seconds
            if seconds
            else None
        ),
        is_lower_bound=point.is_lower_bound,
        is_upper_bound=is_crowded and point.scale > 1,
        known_seconds=point.known_seconds,
    )


def _device_bytes(asked: QueryContext) -> int | None:
    """Memory as the engine measured it, or NVML's figure for the only device that it reports."""
    total = asked.folds[Ledger].memory_terms.get("total")
    if total:
        return total
    devices = set(asked.folds[DeviceMemory].samples())
    gpu = asked.machine.gpu
    sample = None if gpu is None else gpu.read().sample
    if sample is None or len(devices) != 1:
        return None
    for device in sample.devices:
        if device.identity.uuid in devices and device.memory is not None:
            return device.memory.total
    return None


WHATIF: Question[WhatIf] = Question(
    name="whatif",
    summary="What the prefix cache would find in pools of other sizes, from 1/16 to 4 times.",
    events=(
        *("PrefixLookup", "PoolCreated", "BlocksAllocated", "BlocksShared", "BlocksCached"),
        *("BlocksEvicted", "BlocksReleased"),
    ),
    counted=("PrefixLookup", "PoolCounted", "PagesReleased", "NamesStored", "NamesRemoved"),
    folds=(Cache, Ledger, Shadows, DeviceMemory, LoadWindow, Tiers),
    read=_answer,
)
