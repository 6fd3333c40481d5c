"""Running and waiting sequences: blocks that they hold and may still take, copies included.

Tokens are counted without a look at every sequence in every step: a clock counts the tokens that a
sequence gets, and each sequence remembers the clock at its first token.
"""

from collections.abc import Callable, Collection

from kvscope_events.events import StepCompleted
from kvscope_exporter.state.block_demand import BlockDemand, Footprint


class Sequences:
    """The running sequences among those that are known; a sequence runs while it holds blocks."""

    def __init__(self, known: Callable[[int], BlockDemand | None]) -> None:
        """known: the demand of a sequence by its number; None: it is not known."""
        self._known = known
        self.running: dict[int, BlockDemand] = {}
        self.owed = 0
        """Blocks that the running sequences may still take."""
        self.clock = 0.0
        """Tokens that a sequence running all the time would have got."""

    def clear(self) -> None:
        self.running.clear()
        self.owed = 0

    def take(self, number: int, count: int) -> bool:
        """Blocks went to a sequence; returns whether it begins to run."""
        sequence = self._known(number)
        if sequence is None:
            return False
        begins = number not in self.running
        if begins:
            self.running[number] = sequence
            sequence.held = 0
            self.owed += sequence.most
        held = sequence.held
        sequence.held = held + count
        if held < sequence.most:
            self.owed -= min(count, sequence.most - held)
        return begins

    def grow(self, footprint: Footprint) -> None:
        """Give each running sequence the blocks that its tokens need: where the blocks are only
        counted, those of decodes come without a sequence."""
        for number in self.running:
            self.grow_one(number, footprint)

    def grow_one(self, number: int, footprint: Footprint) -> None:
        """The same for one of them, before it takes or gives back some."""
        sequence = self.running.get(number)
        if sequence is not None:
            tokens = sequence.prompt_tokens + int(self.produced(sequence)) - 1  # as in `add`
            more = min(sequence.most, footprint.blocks(tokens)) - sequence.held
            if more > 0:
                self.take(number, more)

    def give_back(self, number: int, count: int) -> None:
        """Blocks left the table of a sequence that continues."""
        sequence = self.running.get(number)
        if sequence is not None:
            left = sequence.held - count
            self.owed += max(0, sequence.most - left) - max(0, sequence.most - sequence.held)
            sequence.held = left

    def stop(self, number: int) -> bool:
        """A sequence no longer runs; returns whether it was known to run."""
        sequence = self.running.pop(number, None)
        if sequence is None:
            return False
        self.owed -= max(0, sequence.most - sequence.held)
        sequence.produced = self.produced(sequence)
        sequence.since = None
        return True

    def resume(self, number: int) -> None:
        """A preempted sequence continues where it was."""
        sequence = self._known(number)
        if sequence is not None and sequence.produced:
            sequence.since = self.clock - sequence.produced

    def produced(self, sequence: BlockDemand) -> float:
        """Output tokens so far."""
        return sequence.produced if sequence.since is None else self.clock - sequence.since

    def step(self, event: StepCompleted) -> None:
        """A step gave each of its sequences a token, or several if it guessed them."""
        rows = len(event.emitted)
        if not rows:
            return
        tokens = 1.0 if event.output_tokens is None else event.output_tokens / rows
        for number in event.first_tokens:
            sequence = self._known(number)
            if sequence is not None:
                sequence.since = self.clock
        self.clock += tokens


class Copies:
    """Copies that forked sequences have yet to make: of last blocks that are shared and not full.

    Every owner of such a block except the last one copies it before writing its next token.
    """

    def __init__(self) -> None:
        self.owed = 0
        self._owners: dict[int, int] = {}  # of such blocks, at least two

    def clear(self) -> None:
        self.owed = 0
        self._owners.clear()

    def share(self, block: int) -> None:
        """A block that is not full has one more owner."""
        self._owners[block] = self._owners.get(block, 1) + 1
        self.owed += 1

    def release(self, blocks: Collection[int]) -> None:
        """Each of these blocks has one owner less, and still has others."""
        owners = self._owners
        if not owners:
            return
        for block in blocks:
            if block in owners:
                self.owed -= 1
                owners[block] -= 1
                if owners[block] == 1:
                    del owners[block]
