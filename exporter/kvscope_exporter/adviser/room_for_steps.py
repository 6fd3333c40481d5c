"""A smaller pool, if the largest step does not fit and smaller steps would not help."""

from msgspec.structs import replace

from kvscope_exporter.adviser.facts import Facts
from kvscope_exporter.adviser.flags import FLAGS, sentence
from kvscope_exporter.adviser.pool_size import candidates, current_value, gain_of, price_of
from kvscope_exporter.adviser.proposal import DeclinedProposal, Proposal, Verdict
from kvscope_exporter.adviser.smaller_steps import fit_of, gain_of_fitting, least_tokens, unknown
from kvscope_exporter.adviser.step_room import step_room


def room_for_steps(facts: Facts) -> Verdict:
    steps = step_room(facts)
    if steps is None:
        return DeclinedProposal(f"a pool that leaves room for steps: {unknown(facts)}", "not known")
    if not steps.is_short:
        return DeclinedProposal(f"a pool that leaves room for steps: {fit_of(steps)}")
    if facts.sizing is None and steps.fitting_tokens >= least_tokens(facts):
        return DeclinedProposal("a pool that leaves room for steps: smaller steps cost less")
    room = steps.room
    missing = steps.takes_bytes + room.margin_bytes - room.free_bytes
    blocks = -(-missing // max(1, room.bytes_per_block))
    longest = facts.longest_blocks
    if longest is None and not facts.is_plain:
        return DeclinedProposal(
            f"a pool that leaves room for steps: {fit_of(steps)}; how many blocks the longest "
            "sequence takes in a pool of several groups is not known",
            "blocked",
        )
    most = facts.usable_blocks - blocks
    found = [c for c in candidates(facts) if (longest or 1) <= c.usable_blocks <= most]
    if not found:
        return DeclinedProposal(
            f"a pool that leaves room for steps: {fit_of(steps)}; too little of it would be left",
            "blocked",
        )
    candidate = max(found, key=lambda candidate: candidate.usable_blocks)
    usable = candidate.usable_blocks
    then, fitting = gain_of(facts, usable), gain_of_fitting(facts, steps.takes_bytes)
    gain = replace(
        fitting,
        hit_ratio_from=then.hit_ratio_from,
        hit_ratio_to=then.hit_ratio_to,
        saved_tokens_per_second=fitting.saved_tokens_per_second + then.saved_tokens_per_second,
    )
    given = (facts.usable_blocks - usable) * room.bytes_per_block
    left = room.free_bytes + given - steps.takes_bytes
    price = replace(price_of(facts, usable), headroom_left_bytes=left)
    option, current = facts.pool_option, current_value(facts)
    return Proposal(
        option=option,
        flag=FLAGS[option],
        current=current,
        proposed=candidate.value,
        text=sentence(option, current, candidate.value, price, gain),
        why=fit_of(steps),
        price=price,
        gain=gain,
        confidence="medium" if steps.errors else "low",
        because=(
            "steps did run out of memory; how much is left is what the driver and torch say"
            if steps.errors
            else "no step has run out of memory yet"
        ),
        assumes=[
            f"what else is on {room.name} takes no more than now; moving it away is the other way",
            "a step of the largest size takes as much as the largest one so far",
        ],
    )
