"""Blocks that ended requests still reference: which ones, why, and since when.

A sequence's references are known once all that existed at the last snapshot are given back. A
sequence that gives everything back before it ends, as nearly all do, costs an append for each
event.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, get_args

from kvscope_events.events import (
    BlocksReleased,
    RequestPreempted,
    RequestResumed,
    SequenceFinished,
)
from kvscope_exporter.state.fold import handlers_of

HoldReason = Literal["transfer", "load"]
"""Reasons for blocks of ended requests. transfer: a connector sends them to another server or
stores them in another tier; the stream does not distinguish the two. load: the request ended before
its blocks were loaded."""
_ALL = frozenset({"finished", "aborted", "preempted", "swapped_out"})
"""Causes of a release that names all references of the sequence in its group."""
MAX_SEQUENCES = 1 << 17
"""Maximum number of sequences with blocks, for a producer that never ends what it begins."""
COMPACTED = 1024
"""Blocks given back in mid-request at which a sequence's list of blocks is shortened."""


class Holds:
    """References by sequence, and the sequences that ended with some left."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """now_ns: arrival of the present batch."""
        self.handlers = handlers_of(self)
        self.tracked = True
        """Whether the engine may hold blocks, and references are reported here."""
        self._now_ns = now_ns
        self._unowned = 0
        self._taken: dict[int, array[int]] = {}
        self._returned: dict[int, array[int]] = {}  # of those taken, by sequences that go on
        self._victims: set[int] = set()  # preempted and not yet resumed
        self._ended: dict[int, tuple[HoldReason, int]] = {}  # with references, the oldest first
        self._leaving: set[int] = set()  # gave back all of a group; other groups follow

    def __len__(self) -> int:
        """Entries remembered."""
        return sum(map(len, self._taken.values())) + sum(map(len, self._returned.values()))

    @property
    def known(self) -> bool:
        """Whether blocks may be held, and the owner of every reference is known."""
        return self.tracked and not self._unowned

    @property
    def oldest_since_ns(self) -> int | None:
        """When the first of the requests that hold blocks ended, on our monotonic clock."""
        return next((since_ns for _, since_ns in self._ended.values()), None)

    def track(self, tracked: bool, references: int) -> None:
        """Begin or cease, if it is a change; references: those in the pool, whose owners are not
        known."""
        if tracked != self.tracked:
            self.tracked = tracked
            self.begin(references)

    def begin(self, references: int) -> None:
        """Start over with this number of references whose owners are not known."""
        self._unowned = references
        for part in (self._taken, self._returned, self._victims, self._ended, self._leaving):
            part.clear()

    def take(self, sequence: int | None, blocks: list[int], *, shared: bool = False) -> None:
        """A sequence got a reference to each block."""
        taken = self._taken.get(sequence)  # type: ignore[arg-type]
        if taken is not None and not self._leaving:  # as in nearly every call
            taken.fromlist(blocks)
            return
        if sequence is None:
            # Blocks that are shared without a request are pinned: no request that ended holds them.
            self._unowned += 0 if shared else len(blocks)
            return
        if sequence in self._leaving:
            self._forget(sequence)
            taken = None
        if taken is None:
            if len(self._taken) >= MAX_SEQUENCES:
                self.begin(self._unowned + sum(map(len, self._taken.values())))
            self._taken[sequence] = array("i", blocks)
        else:
            taken.fromlist(blocks)

    def give_back(self, event: BlocksReleased, ref_counts: Sequence[int]) -> None:
        """References were given back; the counts are those afterwards."""
        sequence = event.sequence
        if sequence is None:
            if self._ended:
                self._forget_unreferenced(event, ref_counts)
            return
        number = len(event.cached) + len(event.free) + len(event.shared)
        taken = self._taken.get(sequence)
        if taken is None:
            self._unowned = max(0, self._unowned - number)
            return
        returned = self._returned.get(sequence)
        left = len(taken) if returned is None else len(taken) - len(returned)
        if event.cause in _ALL:
            if number >= left:
                self._unowned = max(0, self._unowned - (number - left))
                self._forget(sequence)
                return
            self._leaving.add(sequence)
        blocks = event.cached + event.free + event.shared
        if self._unowned:
            own = set(taken)
            others = sum(1 for block in blocks if block not in own)
            self._unowned = max(0, self._unowned - others)
            blocks = [block for block in blocks if block in own]
        if returned is None:
            self._returned[sequence] = array("i", blocks)
        else:
            returned.fromlist(blocks)
            if len(returned) >= COMPACTED and 2 * len(returned) >= len(taken):
                self._taken[sequence] = array("i", self._blocks(sequence))
                del self._returned[sequence]

    def on_request_preempted(self, event: RequestPreempted) -> None:
        """It waits; blocks that it gets before it resumes are loaded into."""
        if not self.tracked:
            return
        if len(self._victims) >= MAX_SEQUENCES:
            self._victims.clear()
        self._victims.add(event.sequence)

    def on_request_resumed(self, event: RequestResumed) -> None:
        self._victims.discard(event.sequence)

    def on_sequence_finished(self, event: SequenceFinished) -> None:
        """A sequence ended: whatever it still references is held."""
        sequence = event.sequence
        waited = event.queue_ns is None or sequence in self._victims
        self._victims.discard(sequence)
        taken = self._taken.get(sequence)
        if taken is None:
            return
        if sequence in self._leaving or len(taken) <= len(self._returned.get(sequence, ())):
            self._forget(sequence)
            return
        self._ended[sequence] = ("load" if waited else "transfer", self._now_ns())

    def step(self, references: int) -> None:
        """A step ended, with this number of references in the pool."""
        if self._leaving:
            for sequence in list(self._leaving):  # all its groups have followed
                self._forget(sequence)
        if not references:
            self._unowned = 0

    def count(self, ref_counts: Sequence[int]) -> dict[HoldReason, int]:
        """Blocks by reason; only those that no other request references. O(blocks held)."""
        held: dict[int, int] = {}
        reasons: dict[int, HoldReason] = {}
        for sequence, (reason, _) in self._ended.items():
            for block in self._blocks(sequence):
                held[block] = held.get(block, 0) + 1
                reasons.setdefault(block, reason)
        counts: dict[HoldReason, int] = dict.fromkeys(get_args(HoldReason), 0)
        for block, references in held.items():
            if ref_counts[block] <= references:
                counts[reasons[block]] += 1
        return counts

    def check(self, references: int) -> None:
        """Assert that no more references have owners than there are; O(sequences)."""
        owned = sum(map(len, self._taken.values())) - sum(map(len, self._returned.values()))
        assert owned + self._unowned <= references, "events contradict each other"
        assert self._ended.keys() <= self._taken.keys()
        assert self._returned.keys() <= self._taken.keys()

    def _blocks(self, sequence: int) -> Iterable[int]:
        taken, returned = self._taken[sequence], self._returned.get(sequence)
        return taken if returned is None else (Counter(taken) - Counter(returned)).elements()

    def _forget(self, sequence: int) -> None:
        self._taken.pop(sequence, None)
        self._returned.pop(sequence, None)
        self._ended.pop(sequence, None)
        self._leaving.discard(sequence)

    def _forget_unreferenced(self, event: BlocksReleased, ref_counts: Sequence[int]) -> None:
        """Forget holds whose blocks were given back without an owner."""
        gone = {block for block in (*event.cached, *event.free) if not ref_counts[block]}
        for sequence in [s for s in self._ended if not gone.isdisjoint(self._blocks(s))]:
            self._forget(sequence)
