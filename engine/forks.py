"""Samples of one prompt: the first one computes it for all.

The leader waits, runs and is preempted like any sequence. The others depend on it: they are in no
queue, hold no block, and share the leader's blocks once its prompt is computed.
"""

from engine.request import Sequence


class Forks:
    """Keeps both directions of the relation consistent, and the count."""

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
