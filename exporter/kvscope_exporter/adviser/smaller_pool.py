"""A smaller pool: frees memory without losing hits or room for running sequences."""

from kvscope_exporter import words
from kvscope_exporter.adviser.facts import Facts
from kvscope_exporter.adviser.flags import FLAGS, sentence
from kvscope_exporter.adviser.pool_size import (
    MIN_QUERIED_BLOCKS,
    candidates,
    confidence_in,
    current_value,
    gain_of,
    price_of,
)
from kvscope_exporter.adviser.proposal import DeclinedProposal, Gain, Proposal, Verdict

MIN_SECONDS = 60.0
"""A pool that was not needed for a while may be needed soon."""
MIN_CUT = 0.2
"""Minimum share of the pool worth a restart."""
SLACK = 1.25
"""Margin above the most blocks that were wanted at once."""
MAX_LOSS = 0.001
"""Lost hits that are negligible, relative to the blocks looked up."""


def smaller_pool(facts: Facts) -> Verdict:
    load, curve = facts.load, facts.curve
    if load is None or facts.seconds < MIN_SECONDS or not load.steps:
        return DeclinedProposal(
            f"a smaller pool: less than {MIN_SECONDS:.0f} s of load were observed", "not known"
        )
    if any(load.preemptions.values()):
        return DeclinedProposal("a smaller pool: sequences were preempted in this one")
    if curve is None or curve.queried_blocks < MIN_QUERIED_BLOCKS:
        return DeclinedProposal(
            "a smaller pool: too few look-ups were observed to say what it would lose", "not known"
        )
    floor = max(
        SLACK * facts.most_needed * facts.usable_blocks,
        facts.longest_blocks or 0,  # with fewer the server refuses to start
    )
    for candidate in candidates(facts):
        usable = candidate.usable_blocks
        if usable > (1 - MIN_CUT) * facts.usable_blocks:
            break
        gain = gain_of(facts, usable)
        before, after = gain.hit_ratio_from, gain.hit_ratio_to
        if usable < floor or before is None or after is None or before - after > MAX_LOSS:
            continue
        price = price_of(facts, usable)
        freed = (facts.usable_blocks - usable) * (facts.bytes_per_block or 0)
        gain = Gain(hit_ratio_from=before, hit_ratio_to=after, freed_bytes=freed or None)
        confidence, because = confidence_in(facts, gain, usable)
        if facts.seconds < 240:
            confidence, because = "low", f"{facts.seconds:.0f} s need not show the largest load"
        option, current = facts.pool_option, current_value(facts)
        return Proposal(
            option=option,
            flag=FLAGS[option],
            current=current,
            proposed=candidate.value,
            text=sentence(option, current, candidate.value, price, gain),
            why=(
                f"the pool could be {words.share(1 - usable / facts.usable_blocks)} smaller "
                f"without losing a hit: at most {words.share(facts.most_needed)} of it were "
                "wanted at once"
            ),
            price=price,
            gain=gain,
            confidence=confidence,
            because=because,
            assumes=[
                f"the last {facts.seconds:.0f} s show the largest load; a quarter more than they "
                "needed is left",
                "nothing but the pool's size changes; blocks are evicted the oldest first",
            ],
        )
    return DeclinedProposal(
        "a smaller pool: it would lose hits, or have no place for what runs at once"
    )
