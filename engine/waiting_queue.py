"""Sequences that wait for admission, best rank first; O(log n)."""

import heapq

from engine.request import Rank, Sequence, SequenceState


class WaitingQueue:
    """A preempted sequence keeps its rank, so it is back before everything that arrived later."""

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
