"""Fewer sequences at once if they preempt each other; more if the pool has room."""

from kvscope_exporter import words
from kvscope_exporter.adviser.facts import Facts
from kvscope_exporter.adviser.flags import FLAGS, sentence, spelled
from kvscope_exporter.adviser.larger_pool import MIN_GAIN
from kvscope_exporter.adviser.pool_size import MIN_SECONDS
from kvscope_exporter.adviser.proposal import DeclinedProposal, Gain, Price, Proposal, Verdict

_FILL = 0.9
"""Maximum share of the pool for the running sequences."""
MIN_WAITING = 0.5
"""Minimum mean number of waiting requests."""


def fewer_sequences(facts: Facts) -> Verdict:
    load, before = facts.load, facts.recomputed_per_second("out_of_blocks")
    if load is None or facts.seconds < MIN_SECONDS or not load.busy_ns:
        return DeclinedProposal(
            f"fewer sequences: less than {MIN_SECONDS:.0f} s of load were observed", "not known"
        )
    computed = load.prefill_tokens / facts.seconds
    if before < max(1.0, MIN_GAIN * computed):
        return DeclinedProposal(
            f"fewer sequences: {before:,.0f} of {computed:,.0f} prompt tokens a second are "
            "recomputed after preemptions"
        )
    if load.waiting_ns > load.running_ns:
        return DeclinedProposal("fewer sequences: requests queue, and would wait longer")
    each = _blocks_each(facts)
    running = load.running_ns / load.busy_ns
    wanted = (load.running_ns + load.waiting_ns) / load.busy_ns
    fits = int(_FILL * facts.usable_blocks / each) if each else 0
    if fits >= wanted:
        return DeclinedProposal("fewer sequences: those that run fit at their ends")
    if fits < max(1.0, running):
        return DeclinedProposal(
            f"fewer sequences: {running:.0f} run on average, more than fit at their ends; with "
            "fewer at a time the engine would compute less"
        )
    excess = facts.excess(1.0)
    after = before * min(1.0, facts.excess(1.0, fits / wanted) / excess) if excess else 0.0
    if after > before / 2:
        return DeclinedProposal("fewer sequences: a few that are long need the pool as often")
    gain = Gain(
        saved_tokens_per_second=before - after,
        recomputed_tokens_per_second_from=before,
        recomputed_tokens_per_second_to=after,
    )
    price = Price(text="sequences that were preempted before wait for admission instead")
    current = None if facts.max_num_seqs is None else float(facts.max_num_seqs)
    if current is not None and fits >= current:
        return DeclinedProposal("fewer sequences: as many as fit are the limit already")
    option = spelled("max_num_seqs", facts.server)
    return Proposal(
        option=option,
        flag=FLAGS[option],
        current=current,
        proposed=float(fits),
        text=sentence(option, current, fits, price, gain),
        why=(
            f"{running:.0f} sequences run on average, each with {each:.0f} blocks at its end, and "
            f"{sum(load.preemptions.values())} were preempted"
        ),
        price=price,
        gain=gain,
        confidence="low",
        because="lengths vary: how often the longest come together is not known from averages",
        assumes=[
            "sequences stay as long as those that ended",
            "only peaks are cut: as many as run on average still do",
        ],
    )


def more_sequences(facts: Facts) -> Verdict:
    load, limit = facts.load, facts.max_num_seqs
    if load is None or facts.seconds < MIN_SECONDS or not load.busy_ns or limit is None:
        return DeclinedProposal("more sequences: the limit, or the load, is not known", "not known")
    if any(load.preemptions.values()):
        return DeclinedProposal("more sequences: those that run already preempt each other")
    waiting = facts.waiting_for_sequences
    if waiting < MIN_WAITING:
        return DeclinedProposal(f"more sequences: only {waiting:.1f} wait for a slot on average")
    each = _blocks_each(facts)
    fits = min(2 * limit, int(_FILL * facts.usable_blocks / each) if each else 0)
    fits = min(fits, max(load.largest_step, limit))  # each needs a token of every step
    if fits <= 1.1 * limit:
        return DeclinedProposal("more sequences: the pool has no blocks for them")
    room = facts.room
    if room is None and facts.uses_device:
        return DeclinedProposal(
            f"more sequences: {waiting:.1f} wait on average, but how much memory is left for more "
            "is not known here",
            "blocked",
        )
    # A row's logits and work space: at most in proportion to the number of sequences.
    more = 0 if room is None else int(room.largest_step_bytes * (fits / limit - 1))
    if room is not None and more > max(0, room.spare_bytes):
        return DeclinedProposal(
            f"more sequences: {waiting:.1f} wait on average, but {room.name} has no headroom for a "
            "larger step",
            "blocked",
        )
    gain = Gain(waiting_sequences_from=waiting)
    left = None
    if room is not None:
        left = room.free_bytes - room.largest_step_bytes - more
    price = Price(
        memory_bytes=more or None,
        room="" if room is None else room.name,
        headroom_left_bytes=left if more else None,
        text="each step computes more sequences and takes longer"
        + ("; the pool is sized without what its activations take more" if facts.sizing else ""),
    )
    option = spelled("max_num_seqs", facts.server)
    return Proposal(
        option=option,
        flag=FLAGS[option],
        current=float(limit),
        proposed=float(fits),
        text=sentence(option, limit, fits, price, gain),
        why=(
            f"{waiting:.1f} requests wait for one of {limit} slots on average, and at most "
            f"{words.share(load.most_active / facts.usable_blocks)} of the pool is active"
        ),
        price=price,
        gain=gain,
        confidence="low",
        because="whether the device computes more sequences as fast is not known from here",
        assumes=[
            "the activations of a step grow at most in proportion to its sequences",
            "with more at a time the engine serves more, so that fewer wait; how many is not known",
        ],
    )


def _blocks_each(facts: Facts) -> float:
    """Blocks of a sequence at its end, minus those it shares with others; 0: not known."""
    load = facts.load
    if load is None or not load.finished or not load.running_ns:
        return 0.0
    at_end = load.finished_tokens / load.finished / facts.block_size
    on_average = load.active_ns / load.running_ns
    return min(at_end, 2 * on_average)  # steady growth averages half of the final size
