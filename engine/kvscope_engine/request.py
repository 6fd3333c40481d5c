"""One call of a client, and its sequences: each is one continuation of a prompt.

A sequence has its tokens, its place in the pool and its times; a call has the figures counted once
per call. A sequence that does not run waits for admission, or for another sample of its prompt.
"""

import heapq
from dataclasses import dataclass, field
from enum import Enum, auto

from kvscope_engine.hashing import PrefixHasher
from kvscope_engine.token_history import TokenHistory
from kvscope_events.trace_context import NO_TRACE, TraceContext
from kvscope_events.vocabulary import FinishReason, Operation

Rank = tuple[int, int]


class SequenceState(Enum):
    """WAITING → RUNNING → FINISHED, and back from RUNNING to WAITING by preemption."""

    WAITING = auto()
    RUNNING = auto()
    FINISHED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Parameters of choosing the next token, and of stopping."""

    max_tokens: int
    temperature: float = 0.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0: all tokens."""
    min_p: float = 0.0
    """Tokens less likely than this share of the likeliest are not drawn."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Distinct token ids, with the values added to their logits."""
    presence_penalty: float = 0.0
    """Subtracted from the logits of tokens that the output has."""
    frequency_penalty: float = 0.0
    """Subtracted for each time that the output has the token."""
    repetition_penalty: float = 1.0
    """Divides positive logits of the tokens of prompt and output, multiplies the others."""
    seed: int | None = None
    """None: the engine's own generator."""
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    logprobs: int | None = None
    """Alternatives reported with each token's log probability; None: no log probabilities."""

    penalises: bool = field(init=False)
    changes_logits: bool = field(init=False)
    """Whether the logits are changed before the choice. Read at every step."""

    def __post_init__(self) -> None:
        penalties = (self.repetition_penalty, self.frequency_penalty, self.presence_penalty)
        penalises = penalties != (1.0, 0.0, 0.0)
        object.__setattr__(self, "penalises", penalises)
        object.__setattr__(self, "changes_logits", penalises or bool(self.logit_bias))


@dataclass(slots=True, eq=False)
class Sequence:
    """A sequence of tokens that grows. Only the engine's thread changes it."""

    sequence_id: int
    request_id: int
    """The call that it belongs to."""
    tokens: list[int]
    """Prompt, then output; append-only. All but the last may have KV."""
    prompt_length: int
    sampling: SamplingParams
    hasher: PrefixHasher
    """Names of the leading full blocks of `tokens`."""

    rank: Rank = (0, 0)
    """Order of service, lower first; unique. The scheduler sets it on arrival."""
    state: SequenceState = SequenceState.WAITING
    block_table: list[int] = field(default_factory=list)
    """Block ids in token order: token i lives in block_table[i // block_size]."""
    num_computed_tokens: int = 0
    """Leading tokens whose KV is in the pool."""
    num_cached_blocks: int = 0
    """Leading blocks of the table that are findable."""
    token_history: TokenHistory | None = None
    """For penalties, once one was needed."""

    forks: list["Sequence"] = field(default_factory=list)
    """Samples of the same prompt that wait for this one to compute it."""
    leader: "Sequence | None" = None
    """The sample that computes the prompt for this one; None: it does so itself, or has done so."""
    host_blocks: list[int] = field(default_factory=list)
    """Blocks of the swap pool with its first `discarded_tokens`; empty: it is not swapped out."""

    num_preemptions: int = 0
    discarded_tokens: int = 0
    """Computed tokens lost by the last preemption."""
    first_scheduled_ns: int | None = None
    admitted_ns: int | None = None
    preempted_ns: int | None = None
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    computed_prompt_tokens: int | None = None
    """Prompt tokens that the first admission had to compute."""
    finish_reason: FinishReason | None = None

    @property
    def prompt(self) -> list[int]:
        """A copy of the prompt's tokens."""
        return self.tokens[: self.prompt_length]

    @property
    def num_output_tokens(self) -> int:
        return len(self.tokens) - self.prompt_length


class WaitingQueue:
    """Sequences that wait for admission, best rank first; O(log n).

    A preempted sequence keeps its rank, so it is back before everything that arrived later.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Rank, Sequence]] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, sequence: Sequence) -> None:
        heapq.heappush(self._heap, (sequence.rank, sequence))
        self._size += 1

    def peek(self) -> Sequence | None:
        """The next sequence; those that stopped waiting meanwhile are dropped here."""
        while self._heap:
            sequence = self._heap[0][1]
            if sequence.state is SequenceState.WAITING:
                return sequence
            heapq.heappop(self._heap)
        return None

    def pop(self) -> Sequence:
        """Take the sequence that `peek` showed."""
        self._size -= 1
        return heapq.heappop(self._heap)[1]

    def forget(self, sequence: Sequence) -> None:
        """Take out a sequence whose state is no longer WAITING; amortised O(log n)."""
        assert sequence.state is not SequenceState.WAITING, "set the new state first"
        self._size -= 1
        if len(self._heap) > 2 * self._size + 64:  # clients that come and go must not pile up here
            self._heap = [entry for entry in self._heap if entry[1].state is SequenceState.WAITING]
            heapq.heapify(self._heap)


class Forks:
    """Samples of one prompt: the first one computes it for all.

    The leader waits, runs and is preempted like any sequence. The others depend on it: they are in
    no queue, hold no block, and share the leader's blocks once its prompt is computed.
    """

    def __init__(self) -> None:
        self.num_waiting = 0
        """Sequences that wait for a leader."""

    def gather(self, samples: list[Sequence]) -> Sequence:
        """Make the first one the leader of the others; returns it."""
        leader = samples[0]
        leader.forks = samples[1:]
        for sequence in leader.forks:
            sequence.leader = leader
        self.num_waiting += len(leader.forks)
        return leader

    def leave(self, sequence: Sequence) -> None:
        """A follower no longer waits for its leader."""
        assert sequence.leader is not None
        sequence.leader.forks.remove(sequence)
        sequence.leader = None
        self.num_waiting -= 1

    def disband(self, leader: Sequence) -> list[Sequence]:
        """Detach all followers of this one; returns them, best rank first."""
        followers, leader.forks = leader.forks, []
        for sequence in followers:
            sequence.leader = None
        self.num_waiting -= len(followers)
        return followers


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
    """See `tenant_digest`; the name itself is not kept."""
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
