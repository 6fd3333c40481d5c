"""Lengths of prompts and of answers, each counted once, whatever the number of samples."""

from kvscope_events.events import (
    PoolCounted,
    PoolCreated,
    PoolSnapshot,
    SequenceFinished,
)
from kvscope_exporter.state.call_fold import CallFold
from kvscope_exporter.state.calls import Request, Sequence

_NO_ANSWER = frozenset({"abort", "error"})


class Lengths(CallFold):
    """A request with several samples has each prompt once in `prompts`, and each sample as an
    answer. The sequences of a request come right behind its arrival."""

    name = "lengths"

    def __init__(self) -> None:
        super().__init__(
            {
                PoolCreated: self._sized,
                PoolSnapshot: self._sized,
                PoolCounted: self._sized,
            }
        )
        self.sequences = 0
        """Sequences that have arrived."""
        self.answers = 0
        """Sequences that ended by themselves, and their tokens."""
        self.answer_tokens = 0
        self._block_size = 0
        self._prompts = self._prompt_blocks = 0  # of the requests before the last one
        self._last = _Request(0, 0)

    @property
    def prompts(self) -> int:
        return self._prompts + self._last.prompts

    @property
    def prompt_blocks(self) -> int:
        """Blocks of these prompts, partial ones included; 0 while the block size is not known."""
        return self._prompt_blocks + self._last.prompt_blocks

    def on_lost(self) -> None:
        self._begin(_Request(0, 0))

    def _sized(self, event: PoolCreated | PoolSnapshot | PoolCounted) -> None:
        self._block_size = event.block_size

    def on_arrived(self, request: Request) -> None:
        assert request.arrived is not None
        self._begin(_Request(request.number, request.arrived.prompt_tokens))

    def _begin(self, request: "_Request") -> None:
        self._prompts, self._prompt_blocks = self.prompts, self.prompt_blocks
        self._last = request

    def on_added(self, sequence: Sequence) -> None:
        event = sequence.added
        assert event is not None
        self.sequences += 1
        if event.request != self._last.number:  # its arrival was lost
            self._begin(_Request(event.request, 0))
        blocks = -(-event.prompt_tokens // self._block_size) if self._block_size else 0
        self._last.add(event.prompt_tokens, blocks)

    def on_ended(self, event: SequenceFinished, sequence: Sequence | None) -> None:
        if event.reason not in _NO_ANSWER:
            self.answers += 1
            self.answer_tokens += event.output_tokens


class _Request:
    """A request and its sequences so far."""

    __slots__ = ("_blocks", "_once_tokens", "_sequences", "_tokens", "number")

    def __init__(self, number: int, once_tokens: int) -> None:
        """once_tokens: of each of its prompts once; 0: not known, each sequence has its own."""
        self.number = number
        self._once_tokens = once_tokens
        self._sequences = self._tokens = self._blocks = 0

    def add(self, tokens: int, blocks: int) -> None:
        self._sequences += 1
        self._tokens += tokens
        self._blocks += blocks

    @property
    def prompts(self) -> int:
        return self._once(self._sequences)

    @property
    def prompt_blocks(self) -> int:
        return self._once(self._blocks)

    def _once(self, count: int) -> int:
        """All samples have the same prompts, so that counts are divided by their number."""
        if not self._once_tokens or self._tokens <= self._once_tokens:
            return count
        return count * self._once_tokens // self._tokens
