"""Fate of the blocks that victims gave back, until they resume.

A block is taken when it is handed out to another sequence. It is kept while its content is there,
whether or not others refer to it.
"""

from collections.abc import Iterable

from kvscope_events.events import BlocksReleased
from kvscope_exporter.state.victim import Victim

MAX_TAKERS = 16
"""Sequences named for one victim; later ones share one figure."""


class Whereabouts:
    """Tracks at most `limit` blocks of all victims together, counting twice one that two gave back.

    Without room for a victim's blocks, their fate stays unknown.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: dict[Victim, dict[int, bool]] = {}  # its blocks not taken; True: with content
        self._victims: dict[int, list[Victim]] = {}  # by block, the reverse mapping
        self._num_followed = 0

    def follow(self, victim: Victim, event: BlocksReleased) -> None:
        """The victim gave these blocks back; a second event of the same victim adds to the first.

        For a block named twice the last one counts.
        """
        if victim.is_followed is False:
            return
        given = dict.fromkeys(event.cached, True)
        given.update(dict.fromkeys(event.shared, True))
        given.update(dict.fromkeys(event.free, False))
        held = self._held.get(victim, {})
        new = given.keys() - held.keys()
        if self._num_followed + len(new) > self._limit:
            self.drop(victim)
            return
        if victim.taken_by is None:
            victim.taken_by = {}
        victim.is_followed = True
        for block in new:
            self._victims.setdefault(block, []).append(victim)
        self._num_followed += len(new)
        held.update(given)
        self._held[victim] = held

    def take(self, blocks: Iterable[int], sequence: int | None) -> None:
        """These blocks were handed out to a sequence that is not one of their victims."""
        pop = self._victims.pop
        for block in blocks:
            victims = pop(block, None)
            if victims is not None:
                self._take(victims, block, sequence)

    def empty(self, blocks: Iterable[int]) -> None:
        """These blocks lost their content and were not handed out."""
        victims_of = self._victims
        for block in blocks:
            for victim in victims_of.get(block, ()):
                self._held[victim][block] = False

    def num_kept(self, victim: Victim) -> int | None:
        """Its blocks that still hold their content; None: unknown."""
        held = self._held.get(victim)
        return victim.kept_blocks if held is None else sum(held.values())

    def leave(self, victim: Victim) -> None:
        """It resumes or has ended: the fate of its blocks is settled."""
        victim.kept_blocks = self.num_kept(victim)
        self._forget(victim)

    def drop(self, victim: Victim) -> None:
        """The fate of its blocks is unknown, unless it is settled."""
        if victim.is_followed is False:
            return
        self._forget(victim)
        victim.taken_by = victim.kept_blocks = None
        victim.taken_by_further = 0

    def _take(self, victims: list[Victim], block: int, sequence: int | None) -> None:
        for victim in victims:
            del self._held[victim][block]
            self._num_followed -= 1
            takers = victim.taken_by
            assert takers is not None
            if sequence in takers or len(takers) < MAX_TAKERS:
                takers[sequence] = takers.get(sequence, 0) + 1
            else:
                victim.taken_by_further += 1

    def _forget(self, victim: Victim) -> None:
        victim.is_followed = False
        held = self._held.pop(victim, {})
        self._num_followed -= len(held)
        for block in held:
            victims = self._victims[block]
            victims.remove(victim)
            if not victims:
                del self._victims[block]

    def check(self) -> None:
        """Assert that both directions agree; for tests."""
        pairs = {(v, block) for v, held in self._held.items() for block in held}
        assert pairs == {(v, block) for block, victims in self._victims.items() for v in victims}
        assert self._num_followed == len(pairs) <= self._limit
