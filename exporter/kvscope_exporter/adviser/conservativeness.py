"""SGLang's estimate of the output to come, if running requests retract each other as they grow."""

import math

from kvscope_exporter import words
from kvscope_exporter.adviser.facts import Facts
from kvscope_exporter.adviser.flags import FLAGS, sentence
from kvscope_exporter.adviser.larger_pool import MIN_GAIN
from kvscope_exporter.adviser.pool_size import MIN_SECONDS
from kvscope_exporter.adviser.proposal import (
    DeclinedProposal,
    Gain,
    Option,
    Price,
    Proposal,
    Verdict,
)

_FLOOR = 0.7 * 0.14
"""Times the option: the least share of their max_tokens that SGLang expects requests to use. It
begins with 0.7 of the option, at most 1, after every idle time, and goes down to 0.14 of that in
600 steps."""
_MOST = 1.4
"""More changes nothing: it begins with all of them."""


def more_conservative(facts: Facts) -> Verdict:
    load, before = facts.load, facts.recomputed_per_second("out_of_blocks")
    if load is None or facts.seconds < MIN_SECONDS:
        return DeclinedProposal(
            f"more conservative admission: less than {MIN_SECONDS:.0f} s of load were observed",
            "not known",
        )
    computed = load.prefill_tokens / facts.seconds
    if before < max(1.0, MIN_GAIN * computed):
        return DeclinedProposal(
            f"more conservative admission: {before:,.0f} of {computed:,.0f} prompt tokens a second "
            "are computed again after retractions"
        )
    again = f"it would spare some of {before:,.0f} recomputed tokens a second"
    current = facts.conservativeness
    if current is None:
        return DeclinedProposal(
            f"more conservative admission: {again}, but the present value is not reported",
            "blocked",
        )
    if not load.max_tokens:
        return DeclinedProposal(
            f"more conservative admission: {again}, but how long replies are is not known",
            "blocked",
        )
    used = load.output_tokens / load.max_tokens
    proposed = min(_MOST, math.ceil(10 * used / _FLOOR) / 10)
    if proposed <= current:
        return DeclinedProposal(
            f"more conservative admission: with {current:.1f} SGLang expects as much as a higher "
            f"value could, or the {words.share(used)} of their max_tokens that requests use"
        )
    gain = Gain(recomputed_tokens_per_second_from=before)
    price = Price(text="fewer requests run at once: more of their output to come is kept free")
    option: Option = "schedule_conservativeness"
    return Proposal(
        option=option,
        flag=FLAGS[option],
        current=current,
        proposed=proposed,
        text=sentence(option, current, proposed, price, gain),
        why=(
            f"{before:,.0f} of {computed:,.0f} prompt tokens a second are computed again: SGLang "
            f"comes to expect that requests use {words.share(current * _FLOOR, 1)} of their "
            f"max_tokens, and they use {words.share(used, 1)}"
        ),
        price=price,
        gain=gain,
        confidence="low",
        because=(
            "replies longer than SGLang expects retract others all the same, and how many come "
            "together is not known"
        ),
        assumes=[
            "SGLANG_INIT_NEW_TOKEN_RATIO and SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR have their defaults",
            "requests have no ignore_eos: SGLang admits those only if all of their max_tokens fit",
        ],
    )
