"""Swap space on the host, if preempted sequences are recomputed."""

import math

from kvscope_exporter import words
from kvscope_exporter.adviser.facts import Facts
from kvscope_exporter.adviser.flags import FLAGS, sentence, would_save
from kvscope_exporter.adviser.larger_pool import MIN_GAIN
from kvscope_exporter.adviser.pool_size import MIN_SECONDS
from kvscope_exporter.adviser.proposal import DeclinedProposal, Gain, Price, Proposal, Verdict

_TIMES = 2
"""Factor on the most blocks that victims were seen to have lost at once."""
_TENTH = 2**30 / 10
"""The flag takes GiB; tenths are fine enough."""


def swap_space(facts: Facts) -> Verdict:
    load, host = facts.load, facts.host
    if not facts.can_swap:
        return DeclinedProposal("swapping: this server cannot")
    if facts.swap_blocks:
        return DeclinedProposal(
            f"swapping: there is swap space for {facts.swap_blocks:,} blocks already"
        )
    if load is None or facts.seconds < MIN_SECONDS:
        return DeclinedProposal(
            f"swapping: less than {MIN_SECONDS:.0f} s of load were observed", "not known"
        )
    before = facts.recomputed_per_second("out_of_blocks")
    computed = load.prefill_tokens / facts.seconds
    if before < max(1.0, MIN_GAIN * computed):
        return DeclinedProposal(
            f"swapping: {before:,.0f} of {computed:,.0f} prompt tokens a second are recomputed for "
            "lack of blocks"
        )
    gain = Gain(
        saved_tokens_per_second=before,
        saved_is="at most",
        recomputed_tokens_per_second_from=before,
        recomputed_tokens_per_second_to=0.0,
    )
    would = f"it {would_save(gain)}"
    if not facts.bytes_per_block or not facts.lost_blocks:
        return DeclinedProposal(
            f"swapping: {would}, but how much victims lose at once is not known", "blocked"
        )
    if host is None:
        return DeclinedProposal(
            f"swapping: {would}, but how much memory the host has is not known here", "blocked"
        )
    wanted = _TIMES * facts.lost_blocks * facts.bytes_per_block
    tenths = math.ceil(wanted / _TENTH)
    taken = math.ceil(tenths * _TENTH)
    if taken * facts.engines > host.spare_bytes:
        return DeclinedProposal(
            f"swapping: {would}, but {words.size(taken * facts.engines)} would be needed, and the "
            "host has "
            f"{words.size(max(0, host.spare_bytes))} to spare",
            "blocked",
        )
    price = Price(
        memory_bytes=taken,
        room=host.name,
        headroom_left_bytes=host.free_bytes - taken * facts.engines,
        text="the blocks of a victim are copied to the host and back, while its step waits",
    )
    return Proposal(
        option="swap_space",
        flag=FLAGS["swap_space"],
        current=None,
        proposed=tenths / 10,
        text=sentence("swap_space", None, tenths / 10, price, gain),
        why=(
            f"{before:,.0f} of {computed:,.0f} prompt tokens a second are recomputed, and victims "
            f"have lost up to {facts.lost_blocks:,} blocks at once"
        ),
        price=price,
        gain=gain,
        confidence="low",
        because="how fast this machine copies blocks is not known before it does",
        assumes=[
            "a copy costs less than recomputing: `auto` measures both and recomputes where it "
            "does not, so the gain may be smaller, but there is no loss",
            "victims lose at most twice as many blocks at once as the last hundred did",
        ],
    )
