"""More tokens in a step if requests wait for them; fewer if prompts hold up what is generated."""

from kvscope_exporter import words
from kvscope_exporter.adviser.facts import Facts
from kvscope_exporter.adviser.flags import FLAGS, sentence, spelled
from kvscope_exporter.adviser.proposal import DeclinedProposal, Gain, Price, Proposal, Verdict
from kvscope_exporter.adviser.sequences import MIN_WAITING
from kvscope_exporter.adviser.smaller_steps import least_tokens
from kvscope_exporter.state.time_parts import SLOW_TOKEN_SECONDS

_MIN_HELD_UP = 0.05
"""Minimum share of the time of running sequences in steps that prompts made late."""
MIN_FASTER = 1.1
"""Minimum factor on the prompt tokens a second; a step that is twice as long brings less."""
_ROUND_TO = 64


def speedup(facts: Facts) -> float | None:
    """Times as many prompt tokens a second with twice the budget; None: not known."""
    if facts.step_budget is None or facts.step_fit is None:
        return None
    fixed_ns, all_ns = facts.step_fit[0], facts.step_fit[1] * facts.step_budget
    return 2 * (fixed_ns + all_ns) / max(1, fixed_ns + 2 * all_ns)


def larger_budget(facts: Facts) -> Verdict:
    budget, fit, waiting = facts.step_budget, facts.step_fit, facts.waiting_for_tokens
    faster = speedup(facts)
    if budget is not None and waiting < MIN_WAITING:
        return DeclinedProposal(f"more tokens in a step: only {waiting:.1f} requests wait for them")
    if budget is None or fit is None or faster is None:
        return DeclinedProposal(
            "more tokens in a step: the limit, or how long steps take, is not known", "not known"
        )
    fixed_ns, token_ns = fit
    before, after = fixed_ns + token_ns * budget, fixed_ns + token_ns * 2 * budget
    if faster < MIN_FASTER:
        return DeclinedProposal(
            f"more tokens in a step: {waiting:.1f} requests wait for them, but a step of twice as "
            f"many would take {2 / faster:.2f} times as long"
        )
    if after > SLOW_TOKEN_SECONDS * 1e9:
        return DeclinedProposal(
            f"more tokens in a step: {waiting:.1f} requests wait for them, but steps would take "
            f"{words.seconds(after / 1e9)}, and so would every token that is generated"
        )
    room = facts.room
    more = 0 if room is None else room.largest_step_bytes
    if (room is None and facts.uses_device) or (room is not None and more > room.spare_bytes):
        return DeclinedProposal(
            f"more tokens in a step: {waiting:.1f} requests wait for them, but no memory is known "
            "to be left for a larger step",
            "blocked",
        )
    price = Price(
        memory_bytes=more or None,
        room="" if room is None else room.name,
        headroom_left_bytes=room.spare_bytes - more if more and room is not None else None,
        text=f"a full step takes {words.seconds(after / 1e9)}, not {words.seconds(before / 1e9)}",
    )
    why = (
        f"{waiting:.1f} requests wait for tokens of a step on average, and twice as many would "
        f"compute prompts {faster:.1f} times as fast"
    )
    return _proposal(facts, 2 * budget, Gain(waiting_sequences_from=waiting), price, why)


def smaller_budget(facts: Facts) -> Verdict:
    budget, fit, held_up = facts.step_budget, facts.step_fit, facts.held_up
    if budget is not None and held_up < _MIN_HELD_UP:
        return DeclinedProposal(
            f"smaller chunks: prompts make tokens late in {words.share(held_up)} of the time"
        )
    if budget is None or fit is None:
        return DeclinedProposal(
            "smaller chunks: the limit, or how long steps take, is not known", "not known"
        )
    fixed_ns, token_ns = fit
    fits = int((SLOW_TOKEN_SECONDS / 2 * 1e9 - fixed_ns) / max(1, token_ns))
    fits = max(least_tokens(facts), fits - fits % _ROUND_TO)
    if fits > budget / 2:
        return DeclinedProposal("smaller chunks: steps would hardly be shorter")
    before, after = fixed_ns + token_ns * budget, fixed_ns + token_ns * fits
    gain = Gain(step_seconds_from=before / 1e9, step_seconds_to=after / 1e9)
    slower = budget * after / (fits * before)
    price = Price(text=f"long prompts take {max(1.0, slower):.1f} times as long to compute")
    why = f"prompts make tokens late in {words.share(held_up)} of the time of running sequences"
    return _proposal(facts, fits, gain, price, why)


def _proposal(facts: Facts, proposed: int, gain: Gain, price: Price, why: str) -> Proposal:
    assert facts.step_budget is not None
    option = spelled("max_num_batched_tokens", facts.server)
    return Proposal(
        option=option,
        flag=FLAGS[option],
        current=float(facts.step_budget),
        proposed=float(proposed),
        text=sentence(option, facts.step_budget, proposed, price, gain),
        why=why,
        price=price,
        gain=gain,
        confidence="medium",
        because="how long such a step takes follows from a fit of the steps so far",
        assumes=["the time of a step grows in proportion to its prompts' tokens"],
    )
