"""Samples of one prompt, of which the first computes it for all.

The leader waits, runs and is preempted as any sequence. The others hang on it: they are in no
queue, hold no block, and share the leader's blocks once its prompt is computed.
"""

from engine.sequence import Sequence


class Forks:
    """Keeps the two directions of the bond alike, and the count."""

    def __init__(self) -> None:
        self.num_waiting = 0
        """Sequences that hang on a leader."""

    def gather(self, samples: list[Sequence]) -> Sequence:
        """The first of them leads the others from now on; returns it."""
        leader = samples[0]
        leader.forks = samples[1:]
        for sequence in leader.forks:
            sequence.leader = leader
        self.num_waiting += len(leader.forks)
        return leader

    def leave(self, sequence: Sequence) -> None:
        """One that hangs on a leader waits for it no longer."""
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
