"""What one step computes: the scheduler writes the plan, the runner carries it out."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.sequence import Sequence


@dataclass(slots=True)
class ScheduledSequence:
    """One row of a step: compute KV for tokens [start, start + count) of the sequence.

    The row samples a token iff that reaches the sequence's last token.
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

    @property
    def num_tokens(self) -> int:
        return self.prefill_tokens + self.decode_tokens

    @classmethod
    def of(cls, rows: Iterable[ScheduledSequence]) -> "StepPlan":
        """A plan of some rows of another, before any of them is committed."""
        plan = cls()
        for row in rows:
            owed = len(row.sequence.tokens) - row.sequence.num_computed_tokens
            plan._add(row, owed)
        return plan

    def add(self, sequence: Sequence, count: int, owed: int) -> None:
        """A row for the next `count` of the `owed` tokens that have no KV yet."""
        self._add(ScheduledSequence(sequence, sequence.num_computed_tokens, count), owed)

    def _add(self, row: ScheduledSequence, owed: int) -> None:
        self.rows.append(row)
        if owed > 1:
            self.prefill_tokens += row.count
        else:
            self.decode_tokens += row.count
