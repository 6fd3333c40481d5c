"""The fold of preemption: costs by mode and cause, and the latest preemptions one by one."""

from collections import deque
from collections.abc import Iterator

from kvscope_events.events import (
    AllocationFailed,
    BlocksAllocated,
    BlocksEvicted,
    BlocksReleased,
    ContentDropped,
    Hello,
    PoolCreated,
    RequestPreempted,
    RequestResumed,
    SequenceFinished,
    StepCompleted,
)
from kvscope_events.vocabulary import Tier
from kvscope_exporter.state.call_fold import CallFold
from kvscope_exporter.state.calls import Sequence
from kvscope_exporter.state.preemption.costs import (
    SWAPPED,
    UNATTRIBUTED,
    Costs,
    Kind,
    costs_by_kind,
)
from kvscope_exporter.state.preemption.whereabouts import Whereabouts
from kvscope_exporter.state.victim import Victim

HISTORY = 100
"""Preemptions remembered one by one."""
FOLLOWED_BLOCKS = 1 << 17
"""Blocks of waiting victims whose new owners are tracked: two million tokens in blocks of 16. They
take at most 41 MB."""

MAX_RELEASES = 128
"""Events that give back one victim's blocks: two for each group of layers."""


class Preemption(CallFold):
    """Sums since the start, and the latest victims.

    A resumption has the mode and cause of its preemption. One whose preemption was not seen is
    counted under neither. A gap makes the fate of waiting victims unknown: no resumption after it
    can be attributed to them, since they may have been preempted again in it.
    """

    name = "preemption"

    def __init__(self, followed_blocks: int = FOLLOWED_BLOCKS) -> None:
        super().__init__()
        self.costs: dict[Kind, Costs] = costs_by_kind()
        """By mode and cause; SWAPPED is present if the producer can swap, UNATTRIBUTED once there
        is such a resumption."""
        self.history: deque[Victim] = deque(maxlen=HISTORY)
        """The latest victims, the oldest first."""
        self.num_gaps = 0
        """Gaps in the stream; their events are missing from the sums."""
        self._whereabouts = Whereabouts(followed_blocks)
        self._num_waiting = 0
        # The preceding event, which may be the cause of a RequestPreempted.
        self._shortage: AllocationFailed | None = None
        self._given: deque[BlocksReleased] = deque(maxlen=MAX_RELEASES)

    @property
    def _waiting(self) -> Iterator[Victim]:
        """The victims that wait."""
        for sequence in self.calls.sequences.values() if self._num_waiting else ():
            if sequence.victim is not None:
                yield sequence.victim

    def on_lost(self) -> None:
        self.num_gaps += 1
        for victim in self._waiting:
            self._lose(victim)
        self._num_waiting = 0
        self.on_step_completed(None)

    def num_kept(self, victim: Victim) -> int | None:
        """Its blocks that keep their content, or did until it resumed or ended; None: unknown."""
        return self._whereabouts.num_kept(victim)

    def waiting_tokens(self, kind: Kind) -> int:
        """Tokens discarded by the waiting victims."""
        events = (victim.preempted for victim in self._waiting)
        return sum(e.discarded_tokens for e in events if (e.mode, e.cause) == kind)

    def check(self) -> None:
        """Assert that the tracked blocks are consistent; for tests."""
        self._whereabouts.check()

    def on_hello(self, event: Hello) -> None:
        if "BlocksSwapped" in event.tells:
            self.costs.setdefault(SWAPPED, Costs())

    def on_pool_created(self, event: PoolCreated) -> None:
        for victim in self._waiting:
            self._whereabouts.drop(victim)  # no block is what it was before

    def on_allocation_failed(self, event: AllocationFailed) -> None:
        self._shortage = event
        self._given.clear()

    def on_step_completed(self, event: StepCompleted | None) -> None:
        """Earlier events have no further consequences."""
        self._shortage = None
        self._given.clear()

    def on_blocks_released(self, event: BlocksReleased) -> None:
        if self._num_waiting and event.free:
            self._whereabouts.empty(event.free)  # shared with a victim until now
        if event.cause not in ("preempted", "swapped_out") or event.sequence is None:
            return
        victim = self._victim(event.sequence)
        if victim is None:
            self._given.append(event)
        else:  # a server may give them back after reporting it
            self._whereabouts.follow(victim, event)

    def _victim(self, number: int) -> Victim | None:
        """This sequence as one that waits."""
        sequence = self.calls.sequences.get(number) if self._num_waiting else None
        return None if sequence is None else sequence.victim

    def _settle(self, sequence: Sequence | None) -> Victim | None:
        """It does not wait any more."""
        if sequence is None or sequence.victim is None:
            return None
        victim, sequence.victim = sequence.victim, None
        self._num_waiting -= 1
        return victim

    def on_preempted(self, event: RequestPreempted, sequence: Sequence) -> None:
        before = self._settle(sequence)
        if before is not None:  # it ran in between, unreported
            self._lose(before)
        victim = Victim(
            preempted=event,
            wanted_by=self._shortage if event.cause == "out_of_blocks" else None,
            time_ns=self.batch.time_ns,
            arrived_ns=self.batch.arrived_ns,
            wall_ns=self.batch.wall_ns,
        )
        for given in self._given:
            if given.sequence == event.sequence:
                self._whereabouts.follow(victim, given)
        self.on_step_completed(None)
        costs = self._costs_of(victim)
        costs.preemptions += 1
        costs.discarded_tokens += event.discarded_tokens
        sequence.victim = victim
        self._num_waiting += 1
        self.history.append(victim)

    def on_blocks_allocated(self, event: BlocksAllocated) -> None:
        if not self._num_waiting:
            return
        if event.sequence is not None:
            victim = self._victim(event.sequence)
            if victim is not None:  # what it takes now is its own
                self._whereabouts.leave(victim)
        self._whereabouts.take(event.blocks, event.sequence)

    def on_blocks_evicted(self, event: BlocksEvicted) -> None:
        # Blocks evicted for room are handed out by the next event, which names the new owner.
        if self._num_waiting and event.cause != "capacity":
            self._whereabouts.empty(event.blocks)

    def on_content_dropped(self, event: ContentDropped) -> None:
        if self._num_waiting:
            self._whereabouts.empty(event.blocks)

    def on_resumed(self, event: RequestResumed, sequence: Sequence) -> None:
        victim = self._settle(sequence)
        if victim is None:
            costs = self.costs.setdefault(UNATTRIBUTED, Costs())
        else:
            self._whereabouts.leave(victim)
            victim.state = "resumed"
            victim.resumed = event
            victim.stalled_ns = event.stalled_ns
            costs = self._costs_of(victim)
        costs.found_tokens += event.cached_tokens
        if event.loaded_tokens:
            source: Tier = event.loaded_from or "other"
            loaded = costs.loaded_tokens
            loaded[source] = loaded.get(source, 0) + event.loaded_tokens
        costs.swapped_tokens += event.swapped_tokens
        costs.recomputed_tokens += event.recompute_tokens
        costs.stalled_ns += event.stalled_ns

    def on_ended(self, event: SequenceFinished, sequence: Sequence | None) -> None:
        victim = self._settle(sequence)
        if victim is None:
            return
        self._whereabouts.leave(victim)
        victim.state = "ended"
        victim.stalled_ns = max(0, self.batch.time_ns - victim.time_ns)
        costs = self._costs_of(victim)
        costs.abandoned_tokens += victim.preempted.discarded_tokens
        costs.stalled_ns += victim.stalled_ns

    def _lose(self, victim: Victim) -> None:
        victim.state = "lost"
        self._whereabouts.drop(victim)
        self._costs_of(victim).lost_tokens += victim.preempted.discarded_tokens

    def _costs_of(self, victim: Victim) -> Costs:
        event = victim.preempted
        return self.costs.setdefault((event.mode, event.cause), Costs())
