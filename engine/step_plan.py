"""What one step computes: the scheduler writes the plan, the runner carries it out."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.sequence import Sequence

if TYPE_CHECKING:
    from engine.runner import SampledToken


@dataclass(slots=True)
class ScheduledSequence:
    """One row of a step: compute KV for tokens [start, start + count) of the sequence.

    The row samples a token iff that reaches the sequence's last token.
    """

    sequence: Sequence
    start: int
    count: int
    prompt_tokens: "list[SampledToken]" = field(default_factory=list)
    """The tokens at `scored`, once the runner knows their log probabilities."""

    @property
    def samples(self) -> bool:
        return self.start + self.count == len(self.sequence.tokens)

    @property
    def scored(self) -> range:
        """Positions of the prompt tokens whose log probability this row gives; mostly none.

        Each is that of a token after one of the row's, in the logits of the one before it.
        """
        sequence = self.sequence
        if not sequence.scores_prompt:
            return range(0)
        return range(
            max(self.start + 1, sequence.num_scored_tokens),
            min(self.start + self.count + 1, sequence.prompt_length),
        )


@dataclass(slots=True)
class StepPlan:
    """The rows of one step; empty when nothing can run."""

    rows: list[ScheduledSequence] = field(default_factory=list)
    prefill_tokens: int = 0
    """Tokens of rows that owe more than their newest token."""
    decode_tokens: int = 0
    num_scored: int = 0
    """Rows of logits that are wanted of prompts, besides those that sample."""

    @property
    def num_tokens(self) -> int:
        return self.prefill_tokens + self.decode_tokens

    def add(self, sequence: Sequence, count: int, owed: int) -> None:
        """A row for the next `count` of the `owed` tokens that have no KV yet."""
        row = ScheduledSequence(sequence, sequence.num_computed_tokens, count)
        self.rows.append(row)
        self.num_scored += len(row.scored)
        if owed > 1:
            self.prefill_tokens += count
        else:
            self.decode_tokens += count
