"""Fewer tokens in a step, if the largest step does not fit into the device's free memory."""

from kvscope_exporter import words
from kvscope_exporter.adviser.facts import Facts
from kvscope_exporter.adviser.flags import FLAGS, HOST, sentence, spelled
from kvscope_exporter.adviser.proposal import DeclinedProposal, Gain, Price, Proposal, Verdict
from kvscope_exporter.adviser.step_room import StepRoom, step_room
from kvscope_exporter.state.recent import Slot

_ROUND_TO = 64
"""Tokens; smaller budgets are multiples of 16."""


def smaller_steps(facts: Facts) -> Verdict:
    load, steps = facts.load, step_room(facts)
    if load is None or steps is None:
        return DeclinedProposal(f"smaller steps: {unknown(facts)}", "not known")
    if not steps.is_short:
        return DeclinedProposal(f"smaller steps: {fit_of(steps)}")
    if facts.sizing is not None:
        return DeclinedProposal(
            "smaller steps: the pool is what the budget leaves, and would grow by what they spare"
        )
    fits = steps.fitting_tokens
    fits -= fits % (_ROUND_TO if fits >= _ROUND_TO else 16)
    if fits < least_tokens(facts):
        return DeclinedProposal(
            f"smaller steps: {fit_of(steps)}; that is not enough for the {least_tokens(facts)} "
            "tokens that a step must have",
            "blocked",
        )
    step_bytes = int(fits * steps.bytes_per_token)
    price = Price(
        room=steps.room.name,
        headroom_left_bytes=steps.room.free_bytes - step_bytes,
        text=f"a prompt of {steps.tokens:,} tokens takes {-(-steps.tokens // fits)} steps, not one",
    )
    gain = gain_of_fitting(facts, step_bytes)
    current = float(steps.tokens) if _is_limit(load) else None
    option = spelled("max_num_batched_tokens", facts.server)
    sequences = FLAGS[spelled("max_num_seqs", facts.server)]
    return Proposal(
        option=option,
        flag=FLAGS[option],
        current=current,
        proposed=float(fits),
        text=sentence(option, current, fits, price, gain),
        why=fit_of(steps),
        price=price,
        gain=gain,
        confidence="medium" if steps.errors else "low",
        because=(
            "steps did run out of memory, but what smaller ones take is a proportion"
            if steps.errors
            else "no step has run out of memory yet, and what smaller ones take is a proportion"
        ),
        assumes=[
            "the memory of a step is in proportion to its tokens; a part that does not depend on "
            "them makes it larger than stated",
            f"what else is on {steps.room.name} takes no more than now",
            f"it is not below {sequences} nor, without chunked prefill, below --max-model-len: "
            "the server would not start",
        ],
    )


def unknown(facts: Facts) -> str:
    """The reason why nothing is known about the memory of steps."""
    if facts.rooms and all(room.name == HOST for room in facts.rooms):
        return "the engine runs on the host, where steps have no memory of their own"
    ran = facts.load is not None and facts.load.largest_step > 0
    if ran and facts.largest_step is None and any(r.largest_step_bytes for r in facts.rooms):
        return (
            "the most that a step took is known, but not for how many tokens: the exporter "
            "started after the pool, or lost batches, and this server's snapshots do not include "
            "it"
        )
    return "how much memory a step takes is not known here"


def least_tokens(facts: Facts) -> int:
    """Tokens of a step: every running sequence has one."""
    load = facts.load
    running = 0 if load is None else round(load.running_ns / max(1, load.busy_ns))
    return max(16, facts.max_num_seqs or 0, running)


def gain_of_fitting(facts: Facts, step_bytes: int) -> Gain:
    """Gain when steps no longer run out of memory."""
    before = facts.recomputed_per_second("out_of_memory")
    errors = 0.0
    if facts.load is not None and facts.seconds:
        errors = facts.load.out_of_memory / facts.seconds
    return Gain(
        saved_tokens_per_second=before,
        recomputed_tokens_per_second_from=before or None,
        recomputed_tokens_per_second_to=0.0 if before else None,
        errors_per_second_from=errors,
        errors_per_second_to=0.0,
        step_bytes_to=step_bytes,
    )


def fit_of(steps: StepRoom) -> str:
    """The largest step's memory compared with what is left, as text."""
    failed = f"{steps.errors} steps ran out of memory; " if steps.errors else ""
    return (
        f"{failed}the largest step, of {steps.tokens:,} tokens, takes about "
        f"{words.size(steps.takes_bytes)}, and {steps.room.name} has "
        f"{words.size(steps.room.free_bytes)} left"
    )


def _is_limit(load: Slot) -> bool:
    """Whether the largest step came again and again: it is the budget, not one cut by an error."""
    return load.largest_steps >= 3 and load.largest_step >= load.largest_failure
