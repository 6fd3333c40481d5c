"""Gain and price of another pool size, and the values of the option that sets it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from kvscope_exporter import words
from kvscope_exporter.adviser.facts import Facts
from kvscope_exporter.adviser.flags import SHARES
from kvscope_exporter.adviser.proposal import Bound, Confidence, Gain, Price

MIN_SECONDS = 30.0
"""Minimum observation for a proposal that rests on the load."""
MIN_QUERIED_BLOCKS = 100
"""Minimum look-ups for one that rests on the curve."""
_GOOD_SECONDS = 240.0
_GOOD_QUERIED_BLOCKS = 2000
_GOOD_ERROR, _BAD_ERROR = 0.01, 0.05
"""Limits for `HitCurve.error_ratio`."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A value of the option, and the resulting pool."""

    value: float
    usable_blocks: int


def candidates(facts: Facts) -> Iterator[Candidate]:
    """Other values that the memory allows, from small to large."""
    spare = facts.spare_blocks
    sizing, option = facts.sizing, facts.pool_option
    if option in SHARES:
        if sizing is None or not facts.bytes_per_block:
            return
        now = math.ceil(sizing.total_bytes * sizing.utilization)
        most = sizing.total_bytes - sizing.in_use_at_start_bytes  # the server refuses to start
        # Each engine on a device takes the share for itself; there must be memory for all.
        own = max((room.own_bytes_per_block for room in facts.rooms), default=0)
        if not own:
            return
        for hundredths in range(1, 100):
            value = hundredths / 100
            requested = math.ceil(sizing.total_bytes * value)
            more = math.floor((requested - now) / own)
            allowed = requested <= most and spare is not None and more <= spare
            if (more <= 0 or allowed) and abs(value - sizing.utilization) > 1e-9:
                yield Candidate(value, facts.usable_blocks + more)
        return
    per_block = _of_block(facts)
    for sixteenths in range(1, 65):
        usable = facts.usable_blocks * sixteenths // 16
        more = usable - facts.usable_blocks
        grows = more > 0 and spare is not None and more <= spare and not only_lowers(facts)
        if per_block and (more < 0 or grows):
            yield Candidate((usable + facts.reserved_blocks) * per_block, usable)


def only_lowers(facts: Facts) -> bool:
    """Whether the option is a limit on what the server takes by itself, as SGLang's on tokens is on
    what its share of the memory gave."""
    return facts.pool_option == "max_total_tokens" and not facts.is_option_set


def current_value(facts: Facts) -> float | None:
    """Present value of the option that sets the pool's size; None: not set, or unknown."""
    if not facts.is_option_set:
        return None
    if facts.pool_option in SHARES and facts.sizing is not None:
        return facts.sizing.utilization
    return float((facts.usable_blocks + facts.reserved_blocks) * (_of_block(facts) or 0))


def _of_block(facts: Facts) -> int | None:
    """A block in the unit of the option that sets the pool's size; None: not known."""
    if facts.pool_option == "kv_cache_memory_bytes":
        return facts.bytes_per_block
    return facts.block_size if facts.pool_option == "max_total_tokens" else 1


def price_of(facts: Facts, usable_blocks: int) -> Price:
    """Price of a pool of this many blocks."""
    more, room = usable_blocks - facts.usable_blocks, facts.room
    if room is None:
        return Price(pool_blocks=more)
    taken = more * room.bytes_per_block
    left = room.free_bytes - room.largest_step_bytes - taken
    return Price(pool_blocks=more, memory_bytes=taken, room=room.name, headroom_left_bytes=left)


def gain_of(facts: Facts, usable_blocks: float, need: float = 1.0) -> Gain:
    """Gain of a pool of this many blocks under the same load.

    need: factor for the blocks wanted at once; one half for two replicas.
    """
    before = facts.recomputed_per_second("out_of_blocks")
    excess = facts.excess(1.0)
    left = facts.excess(usable_blocks / facts.usable_blocks, need)
    after = before * min(1.0, left / excess) if excess else 0.0
    if facts.is_overloaded:  # the outcome is unknown: nothing is promised
        before = after = 0.0
    hits = 0.0
    ratio_now: float | None = None
    ratio_then: float | None = None
    curve = facts.curve
    if curve is not None and curve.queried_blocks and curve.seconds:
        hits_now, hits_then = curve.hits(facts.usable_blocks), curve.hits(usable_blocks)
        saved_now, saved_then = curve.saved(facts.usable_blocks), curve.saved(usable_blocks)
        if saved_now is not None and saved_then is not None:
            hits = (saved_then - saved_now) * facts.block_size / curve.seconds
        if hits_now is not None and hits_then is not None:
            ratio_now = hits_now / curve.queried_blocks
            ratio_then = hits_then / curve.queried_blocks
    return Gain(
        hit_ratio_from=ratio_now,
        hit_ratio_to=ratio_then,
        saved_tokens_per_second=hits + before - after,
        saved_is=bound_of(facts, usable_blocks),
        recomputed_tokens_per_second_from=before or None,
        recomputed_tokens_per_second_to=after if before else None,
    )


def bound_of(facts: Facts, usable_blocks: float) -> Bound:
    """The kind of number that is predicted for the hits of a pool of this many blocks."""
    load, curve = facts.load, facts.curve
    is_crowded = load is not None and load.is_crowded
    known = None if curve is None else curve.exact_up_to_blocks
    is_least = known is not None and usable_blocks > known
    if is_least:
        return "about" if is_crowded else "at least"
    return "at most" if is_crowded and usable_blocks >= facts.usable_blocks else "about"


def confidence_in(facts: Facts, gain: Gain, usable_blocks: int) -> tuple[Confidence, str]:
    """Confidence in a proposal of a pool of this many blocks, and the reason."""
    curve = facts.curve
    error = None if curve is None else curve.error_ratio
    if curve is None or not curve.queried_blocks:
        return "low", "no look-ups were observed, so that only preemptions are counted"
    if error is not None and error > _BAD_ERROR:
        return "low", (
            "the curve at the present size differs from the engine's own hits by "
            f"{words.share(error, 1)} of the blocks looked up"
        )
    watched = f"{curve.seconds:.0f} s with {curve.queried_blocks:,} blocks looked up"
    if curve.seconds < 2 * MIN_SECONDS or curve.queried_blocks < 5 * MIN_QUERIED_BLOCKS:
        return "low", f"it rests on only {watched}"
    before, after = gain.recomputed_tokens_per_second_from, gain.recomputed_tokens_per_second_to
    avoided = 0.0 if before is None or after is None else before - after
    if avoided > gain.saved_tokens_per_second / 2:
        return "medium", (
            "most of it comes from preemptions, which are estimated from how far the need for "
            "blocks exceeds the pool"
        )
    if facts.is_overloaded:
        return "medium", (
            "more sequences wait than a pool could serve: with more hits the engine computes "
            "others instead of saving tokens, and what preemptions will cost is not known"
        )
    if curve.exact_up_to_blocks is not None and usable_blocks > curve.exact_up_to_blocks:
        return "medium", (
            "what such a pool would have held was not known all the time: the hits are at least "
            "these"
        )
    if not facts.is_plain and bound_of(facts, usable_blocks) == "at most":
        return "medium", (
            "requests waited: a larger pool admits them earlier, and computes equal beginnings at "
            "the same time"
        )
    if curve.seconds < _GOOD_SECONDS or curve.queried_blocks < _GOOD_QUERIED_BLOCKS:
        return "medium", f"it rests on {watched}"
    if error is None or error > _GOOD_ERROR:
        known = "not known" if error is None else f"{words.share(error, 1)} of the blocks looked up"
        return "medium", f"the curve's error at the present size is {known}"
    return "high", (
        f"the hits of every size are counted over {watched}; at the present size the "
        f"curve and the engine differ by {words.share(error, 2)}"
    )
