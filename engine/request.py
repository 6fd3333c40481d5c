"""One call of a client: its sequences, and the figures counted once per call."""

from dataclasses import dataclass

from engine.sequence import Sequence
from kvscope_events.trace_context import NO_TRACE, TraceContext
from kvscope_events.vocabulary import FinishReason, Operation

_FROM_BEST: tuple[FinishReason, ...] = ("stop", "length", "abort", "error")


@dataclass(slots=True, eq=False, kw_only=True)
class Request:
    """A call with all its sequences. Only the engine's thread changes it once it is submitted."""

    request_id: int
    sequences: list[Sequence]
    """Prompt by prompt, the choices of one prompt together; at least one."""
    arrival_ns: int
    choices_per_prompt: int = 1
    """The call's `n`."""
    priority: int = 0
    """Lower numbers first, under the policy `priority`."""
    tenant: str = ""
    trace: TraceContext = NO_TRACE
    operation: Operation = ""
    """The call's route; empty: none."""

    num_running: int = 0
    """Sequences that run now."""
    num_finished: int = 0
    first_scheduled_ns: int | None = None
    first_token_ns: int | None = None

    @property
    def prompts(self) -> list[Sequence]:
        """One sequence of each prompt."""
        return self.sequences[:: self.choices_per_prompt]

    @property
    def samples(self) -> list[list[Sequence]]:
        """The sequences of each prompt."""
        n = self.choices_per_prompt
        return [self.sequences[first : first + n] for first in range(0, len(self.sequences), n)]

    @property
    def prompt_tokens(self) -> int:
        """Tokens of each prompt once."""
        return sum(sequence.prompt_length for sequence in self.prompts)

    @property
    def output_tokens(self) -> int:
        return sum(sequence.num_output_tokens for sequence in self.sequences)

    @property
    def max_tokens(self) -> int:
        """Output tokens that one sequence may have, the longest of them."""
        return max(sequence.sampling.max_tokens for sequence in self.sequences)

    @property
    def num_preemptions(self) -> int:
        return sum(sequence.num_preemptions for sequence in self.sequences)

    @property
    def finished(self) -> bool:
        return self.num_finished == len(self.sequences)

    @property
    def finish_reason(self) -> FinishReason:
        """The worst reason among finished sequences. Raises ValueError before there is one."""
        reasons = [sequence.finish_reason for sequence in self.sequences]
        return max((r for r in reasons if r is not None), key=_FROM_BEST.index)
