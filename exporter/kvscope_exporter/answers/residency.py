"""`GET /api/residency`: how long blocks stay, both resident ones and those that left."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from kvscope_exporter.answers.ages import FinishedAges, PresentAges, finished, present
from kvscope_exporter.answers.question import QueryContext, Question, UnknownError
from kvscope_exporter.catalogue.pool import STATE_EVENTS
from kvscope_exporter.state import Cache
from kvscope_exporter.state.cache.blocks import NEVER

_CENSORING = (
    "lifetime and idle_before_eviction cover only blocks that were evicted to make room: while "
    "much of the pool is younger or still in use, long times are missing from them. resident and "
    "idle have the blocks that are here now, with the time so far, which is not over. Blocks that "
    "were here before the exporter watched, or since lost events, are counted as unknown_blocks."
)


class ResidencyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Times of all blocks of the pool, without sampling."""

    censoring: str
    retention_seconds: float | None
    """Idle time of the next block to be evicted; None: no block can be evicted, or it became idle
    before the exporter watched.
    """
    lifetime: FinishedAges
    """From becoming findable to eviction for lack of room."""
    idle_before_eviction: FinishedAges
    """From the last reference to eviction for lack of room."""
    reuse_gap: FinishedAges
    """From the last reference to the next one by a prefix hit."""
    resident: PresentAges
    """Blocks that are findable now, by the time since they became so."""
    idle: PresentAges
    """Those of them that no sequence references, by the time since the last reference."""
    otherwise_blocks: int
    """Idle blocks that lost their content for a reason other than lack of room, such as a reset of
    the prefix cache; excluded from the finished times.
    """


class _Snapshot(NamedTuple):
    """Raw material of the answer; the blocks' times are copied, since they are sorted later."""

    now_ns: int
    oldest_ns: int | None
    lifetime: FinishedAges
    idle_before_eviction: FinishedAges
    reuse_gap: FinishedAges
    written_ns: Sequence[int]
    untimed_blocks: int
    idle_ns: Sequence[int]
    untimed_idle_blocks: int
    otherwise_blocks: int


def _read(asked: QueryContext) -> _Snapshot:
    cache = asked.folds[Cache]
    if not cache.known:
        raise UnknownError("the pool's state is not known until the engine's next snapshot")
    residency, blocks = cache.residency, cache.blocks
    unknown = residency.unknown
    return _Snapshot(
        now_ns=cache.now_ns(asked.clock.now().monotonic_ns),
        oldest_ns=residency.oldest_idle_ns(),
        lifetime=finished(residency.lifetime_seconds, unknown["lifetime"]),
        idle_before_eviction=finished(residency.idle_seconds, unknown["idle"]),
        reuse_gap=finished(residency.reuse_seconds, unknown["reuse"]),
        written_ns=blocks.written_ns[:],
        untimed_blocks=blocks.num_untimed,
        idle_ns=blocks.idle_ns[:],
        untimed_idle_blocks=residency.idle.get(NEVER, 0),
        otherwise_blocks=residency.otherwise_blocks,
    )


def _finish(moment: _Snapshot) -> ResidencyAnswer:
    now_ns, oldest_ns = moment.now_ns, moment.oldest_ns
    return ResidencyAnswer(
        censoring=_CENSORING,
        retention_seconds=None if oldest_ns is None else max(0, now_ns - oldest_ns) / 1e9,
        lifetime=moment.lifetime,
        idle_before_eviction=moment.idle_before_eviction,
        reuse_gap=moment.reuse_gap,
        resident=present(moment.written_ns, now_ns, moment.untimed_blocks),
        idle=present(moment.idle_ns, now_ns, moment.untimed_idle_blocks),
        otherwise_blocks=moment.otherwise_blocks,
    )


RESIDENCY: Question[ResidencyAnswer] = Question(
    name="residency",
    summary="How long blocks stay in the pool: those evicted, and those that are here.",
    events=STATE_EVENTS,
    folds=(Cache,),
    read=_read,
    finish=_finish,
)
