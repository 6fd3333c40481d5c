"""Windows and states kept at every place, where prompts resume at others than vLLM keeps."""

from kvscope_exporter import words
from kvscope_exporter.adviser.facts import Facts
from kvscope_exporter.adviser.flags import FLAGS, sentence
from kvscope_exporter.adviser.larger_pool import MIN_GAIN
from kvscope_exporter.adviser.pool_size import (
    MIN_QUERIED_BLOCKS,
    MIN_SECONDS,
    bound_of,
    confidence_in,
)
from kvscope_exporter.adviser.proposal import (
    DeclinedProposal,
    Gain,
    Option,
    Price,
    Proposal,
    Verdict,
)

_OPTION: Option = "prefix_cache_retention_interval"
_KIND = "keeping more windows and states"


def denser_retention(facts: Facts) -> Verdict:
    load, curve, every = facts.load, facts.curve, facts.alignment
    if facts.is_plain:
        return DeclinedProposal(f"{_KIND}: the model has none")
    if facts.retention is None or every is None or 0 < facts.retention <= every:
        return DeclinedProposal(f"{_KIND}: all are kept, or how many are is not known")
    now = None if curve is None else curve.hits(facts.usable_blocks)
    if curve is None or now is None or curve.retaining_hit_blocks is None:
        return DeclinedProposal(f"{_KIND}: what such a pool would find is not known", "not known")
    if load is None or min(facts.seconds, curve.seconds) < MIN_SECONDS:
        return DeclinedProposal(
            f"{_KIND}: less than {MIN_SECONDS:.0f} s of load were observed", "not known"
        )
    if curve.queried_blocks < MIN_QUERIED_BLOCKS:
        return DeclinedProposal(
            f"{_KIND}: fewer than {MIN_QUERIED_BLOCKS} blocks were looked up", "not known"
        )
    computed = load.prefill_tokens / facts.seconds
    saved = (curve.retaining_hit_blocks - now) * facts.block_size / curve.seconds
    ratios = now / curve.queried_blocks, curve.retaining_hit_blocks / curve.queried_blocks
    if saved < max(1.0, MIN_GAIN * computed):
        return DeclinedProposal(
            f"{_KIND}: with all of them {words.share(ratios[1], 1)} of the blocks looked up would "
            f"be found, now {words.share(ratios[0], 1)}"
        )
    current = float(facts.retention)
    gain = Gain(
        hit_ratio_from=ratios[0],
        hit_ratio_to=ratios[1],
        saved_tokens_per_second=saved,
        saved_is=bound_of(facts, facts.usable_blocks),
    )
    price = Price(text="they take blocks that hold other content now, which the gain allows for")
    confidence, because = confidence_in(facts, gain, facts.usable_blocks)
    return Proposal(
        option=_OPTION,
        flag=FLAGS[_OPTION],
        current=current,
        proposed=float(every),
        text=sentence(_OPTION, current, every, price, gain),
        why=(
            "a prompt resumes only where its windows and states are kept: "
            f"{words.share(ratios[0])} of the blocks looked up are found"
        ),
        price=price,
        gain=gain,
        confidence=confidence,
        because=because,
        assumes=[
            "the load stays as it was: faster answers attract more requests",
            "nothing else changes; how many windows and states are kept does not slow down a step",
        ],
    )
