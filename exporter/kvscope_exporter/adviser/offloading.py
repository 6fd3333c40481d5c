"""A tier in host memory below the pool of a vLLM or SGLang: what was evicted is loaded, not
computed again."""

import math

from kvscope_exporter import words
from kvscope_exporter.adviser.facts import Facts
from kvscope_exporter.adviser.flags import FLAGS, saved_of, sentence, spelled, would_save
from kvscope_exporter.adviser.larger_pool import MIN_GAIN
from kvscope_exporter.adviser.pool_size import MIN_SECONDS, bound_of, confidence_in
from kvscope_exporter.adviser.proposal import (
    DeclinedProposal,
    Gain,
    Option,
    Price,
    Proposal,
    Verdict,
)

_UNITS: dict[Option, tuple[float, int]] = {
    "kv_offloading_size": (2**30, 10),
    "hicache_size": (1e9, 1),
}
"""Bytes of the flag's unit, and its parts: tenths of a GiB are fine enough; SGLang's are whole GB.
"""
_COPIES = {
    "kv_offloading_size": "the tier gets a copy of every full block, and evicts the oldest release "
    "first, as vLLM's own does by default: it needs more room than the pool to bring anything",
    "hicache_size": "the tier gets a copy of every full page, as with --hicache-write-policy "
    "write_through, and evicts the least recently used first",
}
_ENOUGH = 0.9
"""Share of the largest tier's gain: the smallest tier that achieves it is proposed."""


def host_tier(facts: Facts) -> Verdict:
    load, host, curve = facts.load, facts.host, facts.curve
    if not facts.can_offload:
        return DeclinedProposal("offloading: this server cannot, or has another connector")
    if load is None or facts.seconds < MIN_SECONDS:
        return DeclinedProposal(
            f"offloading: less than {MIN_SECONDS:.0f} s of load were observed", "not known"
        )
    if curve is None or not curve.queried_blocks or not curve.seconds:
        return DeclinedProposal(
            "offloading: not known, since no look-ups were observed", "not known"
        )
    held, computed = facts.tier_blocks, load.prefill_tokens / facts.seconds
    present = max(facts.usable_blocks, held)
    if host is None or not facts.bytes_per_block:
        most = max((point.capacity_blocks or 0 for point in curve.points), default=0)
        saved = _saved(facts, present, most)
        would = Gain(saved_tokens_per_second=saved, saved_is=bound_of(facts, most))
        return DeclinedProposal(
            f"offloading: a tier of four times the pool {would_save(would)}, but how much memory "
            "the host has is not known here",
            "blocked" if saved >= max(1.0, MIN_GAIN * computed) else "not known",
        )
    of_block = facts.bytes_per_block * facts.engines
    most_blocks = held + max(0, host.spare_bytes) // of_block
    sizes = [
        point.capacity_blocks
        for point in curve.points
        if point.capacity_blocks is not None and present < point.capacity_blocks <= most_blocks
    ]
    gains = [(size, _saved(facts, present, size)) for size in sizes]
    best = max((saved for _, saved in gains), default=0.0)
    if best < max(1.0, MIN_GAIN * computed):
        return DeclinedProposal(
            f"offloading: a tier that the host has room for ({words.size(most_blocks * of_block)}) "
            f"{saved_of(best, computed, bound_of(facts, most_blocks))}"
        )
    blocks, saved = next((size, saved) for size, saved in gains if saved >= _ENOUGH * best)
    return _proposal(facts, present, blocks, saved)


def _proposal(facts: Facts, present: int, blocks: int, saved: float) -> Proposal:
    curve, host, load = facts.curve, facts.host, facts.load
    assert curve is not None
    assert host is not None
    assert load is not None
    assert facts.bytes_per_block
    option = spelled("kv_offloading_size", facts.server)
    unit, parts = _UNITS[option]
    proposed = math.ceil(blocks * facts.bytes_per_block / unit * parts) / parts
    taken = math.ceil(proposed * unit) - facts.tier_blocks * facts.bytes_per_block
    of_token = facts.bytes_per_block / facts.block_size
    loaded = _saved(facts, facts.usable_blocks, blocks) * of_token
    price = Price(
        memory_bytes=taken,
        room=host.name,
        headroom_left_bytes=host.free_bytes - taken * facts.engines,
        text=f"{words.size(loaded)} a second are loaded, and whatever is computed is stored",
    )
    before, after = curve.hits(present), curve.hits(blocks)
    gain = Gain(
        hit_ratio_from=None if before is None else before / curve.queried_blocks,
        hit_ratio_to=None if after is None else after / curve.queried_blocks,
        saved_tokens_per_second=saved,
        saved_is=bound_of(facts, blocks),
    )
    confidence, because = confidence_in(facts, gain, blocks)
    if confidence == "high":
        confidence, because = "medium", "how fast this machine copies blocks is not in the curve"
    held = facts.tier_blocks * facts.bytes_per_block / unit or None
    pace = load.prefill_tokens / load.busy_ns * 1e9 if load.busy_ns else 0.0
    return Proposal(
        option=option,
        flag=FLAGS[option],
        current=held,
        proposed=proposed,
        text=sentence(option, held, proposed, price, gain),
        why=(
            f"{gain.saved_is} {saved:,.0f} prompt tokens a second are computed that such a tier "
            "would still have"
        ),
        price=price,
        gain=gain,
        confidence=confidence,
        because=because,
        assumes=[
            f"copies into the pool are faster than {words.size(pace * of_token)} a second, at "
            "which this engine computes prompts beside everything else",
            _COPIES[option],
        ],
    )


def _saved(facts: Facts, present: int, blocks: int) -> float:
    """Prompt tokens a second that are found with this size, and are not with the present one."""
    curve = facts.curve
    assert curve is not None
    before, after = curve.hits(present), curve.hits(blocks)
    if before is None or after is None:
        return 0.0
    return (after - before) * facts.block_size / curve.seconds
