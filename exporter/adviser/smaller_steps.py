"""Fewer tokens in a step, where the largest step does not fit into what the device has left."""

from exporter.adviser.facts import Facts
from exporter.adviser.proposal import Declined, Gain, Price, Proposal, Verdict
from exporter.adviser.words import FLAGS, in_bytes, sentence
from exporter.fold.recent import Slot

_ROUND_TO = 64
"""Tokens; smaller budgets are multiples of 16."""


def smaller_steps(facts: Facts) -> Verdict:
    load = facts.load
    room = min(facts.rooms, key=lambda r: r.free_bytes - r.largest_step_bytes, default=None)
    if load is None or room is None or not room.largest_step_bytes or not load.largest_step:
        return Declined("smaller steps: how much memory a step takes is not known")
    tokens = max(load.largest_step, load.smallest_failure or 0)
    per_token = max(room.largest_step_bytes / load.largest_step, load.wanted_per_token)
    takes = int(tokens * per_token)
    left = room.free_bytes - takes
    if left >= 0 and not (load.out_of_memory and left < room.margin_bytes):
        return Declined(
            f"smaller steps: the largest one, of {tokens:,} tokens, takes {in_bytes(takes)} of the "
            f"{in_bytes(room.free_bytes)} that {room.name} has left"
        )
    fits = int((room.free_bytes - room.margin_bytes) / per_token)
    fits -= fits % (_ROUND_TO if fits >= _ROUND_TO else 16)
    least = max(16, facts.max_num_seqs or 0, round(load.running_ns / max(1, load.busy_ns)))
    if fits < least:
        return Declined(
            f"smaller steps: {room.name} has {in_bytes(room.free_bytes)} left, not enough for "
            f"{least} tokens; the pool must give memory back"
        )
    price = Price(
        headroom_left_bytes=int(room.free_bytes - fits * per_token),
        text=f"a prompt of {tokens:,} tokens takes {-(-tokens // fits)} steps instead of one",
    )
    before = facts.recomputed_per_second("out_of_memory")
    errors = load.out_of_memory / facts.seconds if facts.seconds and load.out_of_memory else None
    gain = Gain(
        saved_tokens_per_second=before,
        recomputed_tokens_per_second_from=before or None,
        recomputed_tokens_per_second_to=0.0 if before else None,
        errors_per_second_from=errors,
        errors_per_second_to=None if errors is None else 0.0,
        step_bytes_to=int(fits * per_token),
    )
    current = float(tokens) if _is_limit(load) else None
    return Proposal(
        option="max_num_batched_tokens",
        flag=FLAGS["max_num_batched_tokens"],
        current=current,
        proposed=float(fits),
        text=sentence("max_num_batched_tokens", current, fits, price, gain),
        why=_why(load, room.name, tokens, takes, room.free_bytes),
        price=price,
        gain=gain,
        confidence="medium" if load.out_of_memory else "low",
        because=(
            "steps did run out of memory, but what smaller ones take is a proportion"
            if load.out_of_memory
            else "no step has run out of memory yet, and what smaller ones take is a proportion"
        ),
        assumes=[
            "the memory of a step is in proportion to its tokens; a part that does not depend on "
            "them makes it larger than stated",
            f"what else is on {room.name} takes no more than now",
        ],
    )


def _is_limit(load: Slot) -> bool:
    """The largest step came again and again: it is the budget."""
    return load.largest_steps >= 3 or load.out_of_memory > 0


def _why(load: Slot, room: str, tokens: int, takes: int, free: int) -> str:
    failed = f"{load.out_of_memory} steps ran out of memory; " if load.out_of_memory else ""
    return (
        f"{failed}a step of {tokens:,} tokens takes about {in_bytes(takes)}, and {room} has "
        f"{in_bytes(free)} left"
    )
