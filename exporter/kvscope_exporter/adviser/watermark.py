"""Blocks that admissions leave free, if running sequences preempt each other as they grow."""

from kvscope_exporter import words
from kvscope_exporter.adviser.facts import Facts
from kvscope_exporter.adviser.flags import FLAGS, sentence
from kvscope_exporter.adviser.larger_pool import MIN_GAIN
from kvscope_exporter.adviser.pool_size import MIN_SECONDS
from kvscope_exporter.adviser.proposal import DeclinedProposal, Gain, Price, Proposal, Verdict

_SHARE = 0.05
"""A part of the pool. In trials more helped more, and cost steps."""


def watermark(facts: Facts) -> Verdict:
    load, before = facts.load, facts.recomputed_per_second("out_of_blocks")
    if not facts.has_watermark:
        return DeclinedProposal("a watermark: this server has none, or its version is not known")
    if load is None or facts.seconds < MIN_SECONDS:
        return DeclinedProposal(
            f"a watermark: less than {MIN_SECONDS:.0f} s of load were observed", "not known"
        )
    computed = load.prefill_tokens / facts.seconds
    if before < max(1.0, MIN_GAIN * computed):
        return DeclinedProposal(
            f"a watermark: {before:,.0f} of {computed:,.0f} prompt tokens a second are recomputed "
            "for lack of blocks"
        )
    gain = Gain(recomputed_tokens_per_second_from=before)
    blocks = int(_SHARE * facts.usable_blocks)
    price = Price(text=f"no sequence is admitted that would leave fewer than {blocks:,} blocks")
    return Proposal(
        option="watermark",
        flag=FLAGS["watermark"],
        current=None,
        proposed=_SHARE,
        text=sentence("watermark", None, _SHARE, price, gain),
        why=(
            f"{before:,.0f} of {computed:,.0f} prompt tokens a second are recomputed: sequences "
            "are admitted that do not fit once those that run have grown"
        ),
        price=price,
        gain=gain,
        confidence="low",
        because="how much depends on how far sequences grow between two ends, which averages hide",
        assumes=[
            "--watermark is not set: admissions leave no blocks, not "
            f"{words.share(_SHARE)} of them",
            "what is preempted are outputs that grow; a prompt that does not fit waits anyway",
        ],
    )
