"""Another replica, if no pool that fits on this device is enough."""

from msgspec.structs import replace

from kvscope_exporter.adviser.facts import Facts
from kvscope_exporter.adviser.flags import sentence, would_save
from kvscope_exporter.adviser.larger_pool import MIN_GAIN
from kvscope_exporter.adviser.pool_size import MIN_SECONDS, candidates, gain_of
from kvscope_exporter.adviser.proposal import DeclinedProposal, Price, Proposal, Verdict

_TIMES = 3
"""Minimum gain relative to the best on this device: a replica is a machine."""
_LEAST_FACTOR = 5
"""Minimum gain relative to one worth a restart."""


def another_replica(facts: Facts) -> Verdict:
    load = facts.load
    if load is None or facts.seconds < MIN_SECONDS:
        return DeclinedProposal(
            f"another replica: less than {MIN_SECONDS:.0f} s of load were observed", "not known"
        )
    now, then = facts.engines, facts.engines + 1
    # The router decides how much of it comes.
    gain = replace(gain_of(facts, facts.usable_blocks * then / now, 1.0), saved_is="at most")
    least = max(1.0, _LEAST_FACTOR * MIN_GAIN * load.prefill_tokens / facts.seconds)
    if gain.saved_tokens_per_second < least:
        if facts.hits_are_unknown:
            return DeclinedProposal(
                "another replica: not known, since no look-ups were observed", "not known"
            )
        return DeclinedProposal("another replica: its pool would save little")
    if facts.room is None:
        return DeclinedProposal(
            f"another replica: it {would_save(gain)}, but whether this pool can grow instead is "
            "not known here",
            "blocked",
        )
    most = max((c.usable_blocks for c in candidates(facts)), default=facts.usable_blocks)
    here = gain_of(facts, most).saved_tokens_per_second
    if _TIMES * max(here, 0.0) > gain.saved_tokens_per_second:
        return DeclinedProposal("another replica: a larger pool here brings much of the same")
    price = Price(
        pool_blocks=facts.usable_blocks, text="another device with another copy of the model"
    )
    return Proposal(
        option="replicas",
        flag="",
        current=float(now),
        proposed=float(then),
        text=sentence("replicas", now, then, price, gain),
        why="no pool that fits here brings a third of it",
        price=price,
        gain=gain,
        confidence="low",
        because="it depends on how requests are routed, which is not known from here",
        assumes=[
            "requests that share a prefix are sent to the same replica; otherwise each keeps its "
            "own copy, and hits gain less",
            "the replicas have half of the load each, and pools as large as this one",
        ],
    )
