"""Smaller blocks, if much of the active ones stays unwritten."""

from kvscope_exporter import words
from kvscope_exporter.adviser.facts import Facts
from kvscope_exporter.adviser.flags import FLAGS, sentence, spelled
from kvscope_exporter.adviser.pool_size import MIN_SECONDS, gain_of
from kvscope_exporter.adviser.proposal import DeclinedProposal, Price, Proposal, Verdict

MIN_UNFILLED = 0.1
"""Minimum share of unwritten slots in active blocks."""
SMALLEST = 16
"""Tokens; the attention kernels of all watched servers support it; smaller blocks only some."""


def smaller_blocks(facts: Facts) -> Verdict:
    load, size = facts.load, facts.block_size
    if load is None or facts.seconds < MIN_SECONDS or not load.active_ns:
        return DeclinedProposal(
            f"smaller blocks: less than {MIN_SECONDS:.0f} s of load were observed", "not known"
        )
    if not facts.knows_unfilled:
        return DeclinedProposal(
            "smaller blocks: how many slots are not written is not reported", "not known"
        )
    unfilled = load.unfilled_ns / (load.active_ns * size)
    if unfilled < MIN_UNFILLED or size // 2 < SMALLEST:
        return DeclinedProposal(
            f"smaller blocks: {words.share(unfilled)} of the slots in active blocks of {size} are "
            "not written"
        )
    half = size // 2
    # With blocks half as long, half as much stays unwritten: room for more blocks.
    share = unfilled / 2 * load.active_ns / load.busy_ns / facts.usable_blocks
    gain = gain_of(facts, facts.usable_blocks * (1 + share))
    if gain.saved_tokens_per_second < 1:
        return DeclinedProposal("smaller blocks: what they would free saves nothing")
    price = Price(text="as many tokens have twice the number of blocks to keep and look up")
    option = spelled("block_size", facts.server)
    return Proposal(
        option=option,
        flag=FLAGS[option],
        current=float(size),
        proposed=float(half),
        text=sentence(option, size, half, price, gain),
        why=f"{words.share(unfilled)} of the slots in active blocks are not written",
        price=price,
        gain=gain,
        confidence="low",
        because="half of the unwritten slots is an average over sequences that end anywhere",
        assumes=[
            "sequences end anywhere in a block",
            "the attention kernels are as fast with smaller blocks",
            f"the memory freed is worth a pool {words.share(share, 1)} larger",
        ],
    )
