"""A larger pool: more hits, fewer preemptions; as large as needed and as the memory allows."""

from kvscope_exporter import words
from kvscope_exporter.adviser.facts import Facts
from kvscope_exporter.adviser.flags import FLAGS, HOST, saved_of, sentence, would_save
from kvscope_exporter.adviser.pool_size import (
    MIN_SECONDS,
    candidates,
    confidence_in,
    current_value,
    gain_of,
    only_lowers,
    price_of,
)
from kvscope_exporter.adviser.proposal import DeclinedProposal, Gain, Proposal, Verdict

MIN_GAIN = 0.01
"""Minimum saving worth a restart: share of the prompt tokens that are computed now."""
_ENOUGH = 0.9
"""Share of the largest pool's savings: the smallest pool that achieves it is proposed."""
_CURVE = (
    "the load stays as it was: the curve does not know that faster answers attract more requests",
    "nothing but the pool's size changes; blocks are evicted the oldest first",
)
_NEED = (
    "waiting sequences would need as many blocks as the running ones hold on average, and "
    "preemptions fall with the blocks wanted beyond the pool"
)
_WITHIN_THE_SHARE = (
    "--mem-fraction-static leaves room for as many tokens: where it does not, SGLang takes as many "
    "as it leaves, and its log says so"
)
_NOT_PROFILED = (
    "no step will be larger than those so far: what the largest one takes was not measured at "
    "start-up"
)


def larger_pool(facts: Facts) -> Verdict:
    load = facts.load
    if load is None or facts.seconds < MIN_SECONDS:
        return DeclinedProposal(
            f"a larger pool: less than {MIN_SECONDS:.0f} s of load were observed", "not known"
        )
    computed = load.prefill_tokens / facts.seconds
    least = max(1.0, MIN_GAIN * computed)
    most = gain_of(facts, 4 * facts.usable_blocks)
    if most.saved_tokens_per_second < least:
        if facts.hits_are_unknown:
            return DeclinedProposal(
                "a larger pool: not known, since no look-ups were observed", "not known"
            )
        saved = saved_of(most.saved_tokens_per_second, computed, most.saved_is)
        return DeclinedProposal(f"a larger pool: four times this one {saved}")
    room = facts.room
    if room is None:
        return DeclinedProposal(
            f"a larger pool: four times this one {would_save(most)}, but how much memory is "
            "left is not known here",
            "blocked",
        )
    if only_lowers(facts):
        return DeclinedProposal(
            f"a larger pool: four times this one {would_save(most)}, but by how much "
            "--mem-fraction-static had to rise is not reported",
            "blocked",
        )
    found = [c for c in candidates(facts) if c.usable_blocks > facts.usable_blocks]
    gains = [gain_of(facts, candidate.usable_blocks) for candidate in found]
    best = max((gain.saved_tokens_per_second for gain in gains), default=0.0)
    if best < least:
        return DeclinedProposal(
            f"a larger pool: four times this one {would_save(most)}, but {room.name} has "
            f"{words.size(room.free_bytes)} of headroom, of which the largest step takes "
            f"{words.size(room.largest_step_bytes)}",
            "blocked",
        )
    candidate, gain = next(
        (c, g)
        for c, g in zip(found, gains, strict=True)
        if g.saved_tokens_per_second >= _ENOUGH * best
    )
    option, price = facts.pool_option, price_of(facts, candidate.usable_blocks)
    confidence, because = confidence_in(facts, gain, candidate.usable_blocks)
    current = current_value(facts)
    assumes = [*_CURVE]
    if option == "max_total_tokens":
        assumes.append(_WITHIN_THE_SHARE)
    if gain.recomputed_tokens_per_second_from:
        assumes.append(_NEED)
    if not all(r.is_profiled or r.name == HOST for r in facts.rooms):
        assumes.append(_NOT_PROFILED)
    return Proposal(
        option=option,
        flag=FLAGS[option],
        current=current,
        proposed=candidate.value,
        text=sentence(option, current, candidate.value, price, gain),
        why=_why(facts, gain, computed),
        price=price,
        gain=gain,
        confidence=confidence,
        because=because,
        assumes=assumes,
    )


def _why(facts: Facts, gain: Gain, computed: float) -> str:
    again = gain.recomputed_tokens_per_second_from
    parts = []
    if gain.hit_ratio_from is not None:
        parts.append(f"{words.share(gain.hit_ratio_from)} of the blocks looked up are found")
    if again:
        parts.append(f"{again:,.0f} of {computed:,.0f} prompt tokens a second are recomputed")
    return f"in a pool of {facts.usable_blocks:,} blocks {' and '.join(parts)}"
