"""Two rows of dummy tokens that any model computes: what a runner tests itself with."""

from engine.hashing import PrefixHasher
from engine.sequence import SamplingParams, Sequence
from engine.step_plan import ScheduledSequence

_SAMPLING = SamplingParams(max_tokens=1, temperature=1.0, top_p=0.9)


def trial_rows(block_size: int) -> list[ScheduledSequence]:
    """A prefill and a first token, each in a block of its own: row i has block i."""
    counts = (min(3, block_size), 1)
    return [
        ScheduledSequence(_sequence(count, block, block_size), 0, count)
        for block, count in enumerate(counts)
    ]


def _sequence(length: int, block: int, block_size: int) -> Sequence:
    return Sequence(
        sequence_id=block,
        request_id=0,
        tokens=[0] * length,
        prompt_length=length,
        sampling=_SAMPLING,
        hasher=PrefixHasher(b"", block_size),
        block_table=[block],
    )
