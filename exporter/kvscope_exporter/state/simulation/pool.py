"""A pool of another size in names only: who references a name, and in which order idle ones go.

Free blocks without a name are handed out first, then idle names, the one released longest ago
first. A name may have several blocks; look-ups find the first of them. What is referenced may
exceed the pool: then it owes blocks, and whatever is released pays them back.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain, groupby

from kvscope_exporter.state.simulation.runs import Digest, Names, Run

_SLACK = 1024
"""Empty entries of the queue of idle blocks beyond the pool's size before it is swept."""


class Pool:
    def __init__(self, capacity: int, groups: int) -> None:
        self.capacity = capacity
        self.names: tuple[Names, ...] = tuple(Names() for _ in range(groups))
        """By group."""
        self.handed_out = 0
        """Blocks handed out since the pool began."""
        self.has_evicted = False
        self.has_owed = False
        """More was referenced than there are blocks: the real pool would have made some wait."""
        self.vacant = capacity
        """Free blocks that hold nothing; negative: referenced blocks that exceed the pool."""
        self._idle: deque[list[Run]] = deque()
        """Runs by the call that released them, in order; the end of the first entry goes first."""

    def leading(self, group: int, digests: Sequence[Digest], limit: int) -> int:
        """The first of these places, up to `limit`, whose block cannot be found."""
        names, place = self.names[group], 0
        while place < limit:
            run = names.get(digests[place])
            if run is None:
                break
            place = run.until(digests, place, limit)
        return place

    def trailing(self, group: int, digests: Sequence[Digest], end: int, most: int) -> int:
        """The place from which on all blocks before `end` can be found; of `most`, or all."""
        names, place = self.names[group], end
        while place > end - most and place:
            run = names.get(digests[place - 1])
            if run is None:
                break
            place = run.at(place - 1)
        return max(place, end - most)

    def share(self, group: int, digests: Sequence[Digest], first: int, end: int) -> list[Run]:
        """Reference the blocks that a look-up has found."""
        names = self.names[group]
        shared: list[Run] = []
        while first < end:
            run = names[digests[first]]
            stop = run.until(digests, first, end)
            if run.first < first:
                run = run.cut(first)[1]
            if stop < run.end:
                run = run.cut(stop)[0]
            first = stop
            run.references += 1
            if run.entry is not None:
                run.entry.remove(run)
                run.entry = None
                if shared and shared[-1].references == 1 and shared[-1].is_alone and run.is_alone:
                    shared[-1] = shared[-1].join(run)
                    continue
            shared.append(run)
        return shared

    def take(self, count: int) -> None:
        """Hand out blocks, with one reference each."""
        self.handed_out += count
        self.vacant -= count
        if self.vacant < 0:
            self._evict()

    def name(self, group: int, first: int, digests: list[Digest], runs: list[Run]) -> None:
        """Referenced blocks without names, the first at this place, become findable.

        runs: those before them in the sequence, to which they are added.
        """
        names = self.names[group]
        if names.keys().isdisjoint(digests):
            run = runs[-1] if runs else None
            if run is not None and run.end == first and run.is_ours(names):
                run.digests += digests
                run.end += len(digests)
            else:
                run = Run(first, first + len(digests), names, digests)
                runs.append(run)
            names.point(digests, run)
            return
        for is_there, some in groupby(digests, names.__contains__):
            part = list(some)
            if is_there:
                runs.append(Run(first, first + len(part), names, part))
                runs[-1].follow()
            else:
                self.name(group, first, part, runs)
            first += len(part)

    def release(self, runs: list[Run]) -> None:
        """Give back one reference each, of the last block first, and empty the list."""
        vacant = self.vacant
        entry: list[Run] = []
        while runs:
            run = runs.pop()
            if run.halves is not None:
                runs += run.halves
            elif run.names is None:
                vacant += run.end - run.first
            else:
                run.references -= 1
                if not run.references:
                    run.entry = entry
                    entry.append(run)
        self.vacant = vacant
        if entry:
            entry.reverse()
            self._idle.append(entry)
            if len(self._idle) > 2 * self.capacity + _SLACK:
                self._idle = deque(filter(None, self._idle))
        if vacant < 0:
            self._evict()

    def resize(self, capacity: int) -> None:
        """Have this number of blocks from now on."""
        self.vacant += capacity - self.capacity
        self.capacity = capacity
        if self.vacant < 0:
            self._evict()

    def forget(self, group: int, digest: Digest) -> None:
        """This name is not valid: none of its blocks can be found again."""
        names = self.names[group]
        while digest in names:
            run = names[digest]
            place = run.first + run.digests.index(digest)
            if run.first < place:
                run = run.cut(place)[1]
            if place + 1 < run.end:
                run = run.cut(place + 1)[0]
            run.hide()

    def reset(self) -> None:
        """Forget every idle name."""
        for run in chain.from_iterable(self._idle):
            self.vacant += run.end - run.first
            run.lose(run.end - run.first)
        self._idle.clear()

    def check(self, tables: Iterable[Iterable[Run]]) -> None:
        """Assert that references and free blocks are those of the tables; O(names)."""
        held: dict[Run, int] = {}
        unnamed = 0
        for table in tables:
            left = [*table]
            while left:
                run = left.pop()
                if run.halves is not None:
                    left += run.halves
                elif run.names is None:
                    unnamed += run.end - run.first
                else:
                    held[run] = held.get(run, 0) + 1
        idle = [*chain.from_iterable(self._idle)]
        assert not any(run.references for run in idle)
        named = sum(run.end - run.first for run in [*held, *idle])
        assert named + unnamed + self.vacant == self.capacity
        assert self.vacant >= 0 or not idle
        for names in self.names:
            for digest, found in names.items():
                for run in [found, *names.younger.get(digest, [])]:
                    assert digest in run.digests
                    assert run.references == held.get(run, 0)
        for run in [*held, *idle]:
            run.check()

    def _evict(self) -> None:
        """Vacate idle blocks until none is owed, or none is left."""
        idle, owed = self._idle, -self.vacant
        while owed > 0 and idle:
            entry = idle[0]
            while entry and owed > 0:
                run = entry[-1]
                count = min(owed, run.end - run.first)
                run.lose(count)
                owed -= count
                self.has_evicted = True
                if not run.digests:
                    entry.pop()
            if not entry:
                idle.popleft()
        self.vacant = -owed
        if owed > 0:
            self.has_owed = True
