"""The plan of one step: the scheduler writes it, the runner answers each of its rows."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kvscope_engine.request import Sequence
from kvscope_events.vocabulary import AdmissionStop


class SampledToken(NamedTuple):
    """The token chosen for one row, with log probabilities if the caller requested them."""

    token_id: int
    logprob: float | None = None
    alternatives: list[tuple[int, float]] | None = None
    """(token id, log probability), the likeliest first."""


@dataclass(slots=True)
class ScheduledSequence:
    """One row of a step: compute KV for tokens [start, start + count) of the sequence.

    The row samples a token iff that reaches the sequence's last token. A row of count 0 is a fork:
    it computes nothing, has no blocks yet, and samples from the logits of the row before it.
    """

    sequence: Sequence
    start: int
    count: int

    @property
    def samples(self) -> bool:
        return self.start + self.count == len(self.sequence.tokens)


@dataclass(slots=True)
class StepPlan:
    """The rows of one step; empty when nothing can run."""

    rows: list[ScheduledSequence] = field(default_factory=list)
    prefill_tokens: int = 0
    """Tokens of rows that owe more than their newest token."""
    decode_tokens: int = 0
    chunks: dict[int, int] = field(default_factory=dict)
    """Those prefill tokens, by the number of the sequence."""
    room: int = 0
    """Tokens that the step could have computed besides."""
    admission_stop: AdmissionStop | None = None
    """The reason why it admits no more; None: it is a part of another plan."""
    num_forks: int = 0
    """Rows that are forks."""
    forks: dict[int, int] = field(default_factory=dict)
    """Number of forks behind the row of a sequence, by its number."""

    @property
    def num_tokens(self) -> int:
        return self.prefill_tokens + self.decode_tokens

    @classmethod
    def of(cls, rows: Iterable[ScheduledSequence]) -> "StepPlan":
        """A plan with some rows of another, before any of them is committed."""
        plan = cls()
        for row in rows:
            if row.count:
                plan._add(row, len(row.sequence.tokens) - row.sequence.num_computed_tokens)
            else:
                plan._fork([row])
        return plan

    def add(self, sequence: Sequence, count: int, owed: int) -> None:
        """Add a row for the next `count` of the `owed` tokens that have no KV yet."""
        self._add(ScheduledSequence(sequence, sequence.num_computed_tokens, count), owed)

    def _add(self, row: ScheduledSequence, owed: int) -> None:
        self.rows.append(row)
        if owed > 1:
            self.prefill_tokens += row.count
            self.chunks[row.sequence.sequence_id] = row.count
        else:
            self.decode_tokens += row.count

    def fork(self, sequences: list[Sequence]) -> None:
        """Add rows for samples of the same prompt, which the last row completes."""
        self._fork([ScheduledSequence(s, s.prompt_length, 0) for s in sequences])

    def _fork(self, rows: list[ScheduledSequence]) -> None:
        leader = next(row for row in reversed(self.rows) if row.count).sequence.sequence_id
        self.forks[leader] = self.forks.get(leader, 0) + len(rows)
        self.num_forks += len(rows)
        self.rows += rows
