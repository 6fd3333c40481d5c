"""SGLang's estimate of the output to come, if running requests retract each other as they grow."""

from exporter.adviser.facts import Facts
from exporter.adviser.flags import FLAGS, sentence
from exporter.adviser.larger_pool import MIN_GAIN
from exporter.adviser.pool_size import MIN_SECONDS
from exporter.adviser.proposal import Declined, Gain, Option, Price, Proposal, Verdict

_DEFAULT = 1.0
_MOST = 1.4
"""SGLang begins with 0.7 of this as the share of max_tokens that a request will use, at most 1, and
goes down to 0.14 of that while nothing is retracted: more changes nothing."""


def more_conservative(facts: Facts) -> Verdict:
    load, before = facts.load, facts.recomputed_per_second("out_of_blocks")
    if load is None or facts.seconds < MIN_SECONDS:
        return Declined(
            f"more conservative admission: less than {MIN_SECONDS:.0f} s of load were observed"
        )
    computed = load.prefill_tokens / facts.seconds
    if before < max(1.0, MIN_GAIN * computed):
        return Declined(
            f"more conservative admission: {before:,.0f} of {computed:,.0f} prompt tokens a second "
            "are computed again after retractions"
        )
    current = facts.conservativeness
    if current is None:
        return Declined("more conservative admission: the present value is not reported")
    if current >= _MOST:
        return Declined(
            f"more conservative admission: with {current:.1f} all of a request's max_tokens are "
            "reserved at first, and more changes nothing"
        )
    proposed = _DEFAULT if current < _DEFAULT else _MOST
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
            f"{before:,.0f} of {computed:,.0f} prompt tokens a second are computed again: requests "
            "are admitted that do not fit once those that run have grown"
        ),
        price=price,
        gain=gain,
        confidence="low",
        because=(
            "how much depends on how much of their max_tokens requests use, and SGLang lowers its "
            "estimate step by step until the next retraction"
        ),
        assumes=[
            "SGLANG_INIT_NEW_TOKEN_RATIO and its like have their defaults",
            "requests have no ignore_eos: SGLang admits those only if all of their max_tokens fit",
        ],
    )
