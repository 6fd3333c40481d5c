"""Victims that keep their KV on the host: copies out and back, and the owners of host blocks."""

import logging
import time
from typing import NamedTuple

from kvscope_engine.block_mover import HostMover
from kvscope_engine.block_pool import BlockPool
from kvscope_engine.request import Sequence
from kvscope_engine.swap.chooser import Chooser, Costs
from kvscope_engine.swap.host_pool import HostPool
from kvscope_events.bus import Bus
from kvscope_events.events import BlocksSwapped
from kvscope_events.throttle import ThrottledLog
from kvscope_events.vocabulary import PreemptionMode, SwapDirection

logger = logging.getLogger(__name__)


class Decision(NamedTuple):
    """The handling of a victim's KV, and the estimated cost of either way; None: not estimated."""

    mode: PreemptionMode
    costs: Costs | None


class SwapManager:
    """Copies victims out and back, on the engine's thread. A swapped-out sequence owns host blocks.

    Its host blocks hold, in the order of its tokens, the KV of everything it had computed.
    """

    def __init__(
        self,
        pool: BlockPool,
        host: HostPool,
        mover: HostMover,
        bus: Bus,
        chooser: Chooser | None = None,
    ) -> None:
        """chooser: decides for each victim; None: every victim that fits is swapped."""
        self.host = host
        self.sequences: set[Sequence] = set()
        """The swapped-out sequences; read-only."""
        self._pool = pool
        self._mover = mover
        self._emit = bus.emit
        self._chooser = chooser
        self._copying_ns = 0  # since the last step that was measured
        self._log = ThrottledLog(logger)

    def preempt(self, sequence: Sequence) -> Decision:
        """Copy a victim's blocks out, before it loses them, if that is possible and pays."""
        num_tokens = sequence.num_computed_tokens
        count = -(-num_tokens // self._pool.block_size)
        table = sequence.block_table[:count]
        costs: Costs | None = None
        if self._chooser is not None:
            costs = self._chooser.estimate(num_tokens, self._pool.num_shared_among(table))
            if costs is None or not costs.prefers_swap:
                return Decision("recompute", costs)
        if not count:
            return Decision("recompute", costs)
        if not self.host.can_allocate(count):
            self._log.warning(
                "full",
                f"the swap pool is full: {count} blocks wanted, {self.host.num_free} of "
                f"{self.host.num_blocks} free; the sequence is recomputed (--swap-space)",
            )
            return Decision("recompute", costs)
        host_blocks = self.host.allocate(count)
        start_ns = time.monotonic_ns()
        self._mover.swap_out(table, host_blocks)
        sequence.host_blocks = host_blocks
        self.sequences.add(sequence)
        self._copied(sequence, "out", count, time.monotonic_ns() - start_ns)
        return Decision("swap", costs)

    def swap_in(self, sequence: Sequence, num_found: int) -> None:
        """Copy back what the prefix cache no longer holds, and release the host blocks.

        The sequence's table begins with the `num_found` found blocks; blocks for the rest follow.
        """
        host_blocks = sequence.host_blocks[num_found:]
        if host_blocks:
            blocks = sequence.block_table[num_found : num_found + len(host_blocks)]
            start_ns = time.monotonic_ns()
            self._mover.swap_in(host_blocks, blocks)
            self._give_up(sequence)
            self._copied(sequence, "in", len(blocks), time.monotonic_ns() - start_ns)
        else:
            self.drop(sequence)

    def drop(self, sequence: Sequence) -> None:
        """Release the host blocks without a copy: the sequence ended, or found everything."""
        self._give_up(sequence)
        self._emit(BlocksSwapped(sequence.sequence_id, "in", 0, self.host.num_used))

    def resumed(self, found_tokens: int, discarded_tokens: int) -> None:
        """A victim of either mode runs again."""
        if self._chooser is not None:
            self._chooser.resumed(found_tokens, discarded_tokens)

    def stepped(self, num_tokens: int, prefill_tokens: int, duration_ns: int) -> None:
        """A step ended; time spent on copies is not part of its tokens' time."""
        if self._chooser is not None and prefill_tokens:
            self._chooser.computed(num_tokens, duration_ns - self._copying_ns)
        self._copying_ns = 0

    def _give_up(self, sequence: Sequence) -> None:
        self.host.release(sequence.host_blocks)
        sequence.host_blocks = []
        self.sequences.remove(sequence)

    def _copied(
        self, sequence: Sequence, direction: SwapDirection, blocks: int, duration_ns: int
    ) -> None:
        self._copying_ns += duration_ns
        if self._chooser is not None:
            self._chooser.copied(direction, blocks, duration_ns)
        used = self.host.num_used
        self._emit(BlocksSwapped(sequence.sequence_id, direction, blocks, used, duration_ns))
