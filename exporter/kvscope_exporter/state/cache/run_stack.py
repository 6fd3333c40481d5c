"""Unreferenced blocks, the newest release first, and how deep the blocks of a path lie.

Blocks form a tree: a path names its blocks from the root, and a block can be found only while all
blocks before it can. A sequence that references a block references those before it too, so a path
starts with referenced blocks, continues with blocks of this stack, ever deeper in it, and ends with
unknown ones. Blocks that were released together stay neighbours in the order of their path, and a
lookup takes the newest of them. So the stack is a list of runs, one for each release, and a lookup
costs one sum over newer runs for each run that it touches, where a list of blocks would need one
for each block.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import compress, count, islice
from operator import ne

_SPARE = 4096
"""Dead runs that are not worth a clean-up."""

Path = Sequence[Hashable]
Segment = tuple[int, int]
"""Consecutive blocks of a path that lie one below the other: the number of blocks of the stack
above the first of them, and their own number."""


class Weights:
    """A Fenwick tree, the oldest weight in slot 1: tree[i] is the sum of the slots (i - lowest bit
    of i, i]. It grows at its end; all operations take O(log n)."""

    __slots__ = ("total", "tree")

    def __init__(self) -> None:
        self.tree = [0]
        self.total = 0

    def __len__(self) -> int:
        """The slot that comes next."""
        return len(self.tree)

    def append(self, weight: int) -> None:
        """The newest slot."""
        tree, slot = self.tree, len(self.tree)
        self.total += weight
        child = slot - 1
        first = slot & child
        while child > first:
            weight += tree[child]
            child &= child - 1
        tree.append(weight)

    def add(self, slot: int, change: int) -> None:
        """Change the weight of a slot."""
        tree, size = self.tree, len(self.tree)
        self.total += change
        while slot < size:
            tree[slot] += change
            slot += slot & -slot

    def above(self, slot: int) -> int:
        """Sum of all newer slots."""
        tree, below = self.tree, 0
        while slot:
            below += tree[slot]
            slot &= slot - 1
        return self.total - below


class _Run:
    """The rest of one release; without weight it is dead, and no block lies in it."""

    __slots__ = ("has_gaps", "path", "slot", "weight")

    def __init__(self, path: Path, weight: int, slot: int, has_gaps: bool = False) -> None:
        self.path = path
        self.weight = weight
        self.slot = slot
        self.has_gaps = has_gaps
        """Its blocks are not simply the last ones of the path."""


class RunStack:
    """Names are any hashable values. The names of a path are distinct; of equal ones only one
    counts.

    A path that contradicts the tree is measured wrongly, but all weights stay right.

    horizon: at least 1; whole oldest runs are forgotten once that many blocks lie above them, which
    changes nothing for the blocks that stay; None: nothing is forgotten. At most twice as many
    names are kept, and those of two paths.
    """

    def __init__(self, horizon: int | None = None) -> None:
        self._horizon = horizon
        self._oldest = 1  # the slot of the oldest run that was not trimmed
        self._young_from = 1  # the first slot of the younger generation
        self.clear()

    def clear(self) -> None:
        """Forget all blocks."""
        self.fill(())

    def fill(self, names: Iterable[Hashable]) -> None:
        """Replace all blocks by these, the newest first, each released by itself.

        Of blocks with one name the newest counts.
        """
        newest = list(islice(dict.fromkeys(names), self._horizon))
        newest.reverse()
        runs = [_Run((name,), 1, 0) for name in newest]
        # To pop the names of each run that is trimmed would cost as much as to push them. So names
        # lie in two generations, and all of the older one go once no run of it is left.
        self._young: dict[Hashable, _Run] = dict(zip(newest, runs, strict=True))
        self._old: dict[Hashable, _Run] = {}  # the runs of some are dead
        self._live = len(runs)
        self._place(runs)

    def __len__(self) -> int:
        """Blocks in the stack, those without a name included."""
        return self._live

    def __contains__(self, name: Hashable) -> bool:
        if name in self._young:
            return True
        run = self._old.get(name)
        return run is not None and run.weight > 0

    def take(self, path: Path, start: int = 0) -> list[Segment]:
        """Remove the leading blocks of path[start:] that are here; all are measured first."""
        young, old, weights = self._young, self._old, self._weights
        tree = weights.tree  # summed here, since this is where the time goes
        found: list[tuple[_Run, int, int]] = []
        at, end, size = start, len(path), len(tree)
        newer = size
        while at < end:
            name, names = path[at], young
            run = young.get(name)
            if run is None:
                names = old
                run = old.get(name)
                if run is None or not run.weight:
                    break
            slot = run.slot
            if slot >= newer:
                break
            newer = slot
            above = 0
            if slot < size - 1:  # most paths begin in the newest run
                above = weights.total
                while slot:
                    above -= tree[slot]
                    slot &= slot - 1
            begin, stop = len(run.path) - run.weight, at + 1
            if run.has_gaps or run.path[begin] != name:
                stop = self._pop_scattered(run, names, path, at)
            else:
                del names[name]
                # Many leave it at once, since all requests begin alike.
                if stop < end and run.weight > 1 and path[stop] == run.path[begin + 1]:
                    stop = self._end_of(run, path, at)
                    for name in path[at + 1 : stop]:
                        del names[name]
            found.append((run, above, stop - at))
            at = stop
        self._live -= at - start
        weights.total -= at - start
        segments = []
        for run, above, blocks in found:
            segments.append((above, blocks))
            run.weight -= blocks
            if not run.weight:
                run.path = ()
            slot = run.slot
            while slot < size:
                tree[slot] -= blocks
                slot += slot & -slot
        return segments

    def push(self, path: Path, unnamed: int = 0) -> None:
        """Put one run on top: path[0] newest, the others below it in their order, `unnamed` last.

        Of two blocks with one name only the newer counts. The stack keeps the path: it must not be
        changed afterwards.
        """
        weight = len(path) + unnamed
        if not weight:
            return
        if not self._old.keys().isdisjoint(path):
            self.remove(path)
        run = _Run(path, weight, len(self._weights), unnamed > 0)
        young = self._young
        named = len(young) + len(path)
        own = young.setdefault
        for name in path:
            own(name, run)
        if len(young) != named:
            run.path = list(dict.fromkeys(path))
            run.weight = weight = len(run.path) + unnamed
            for name in run.path:
                owner = young[name]
                if owner is not run:
                    young[name] = run
                    self._lighten(owner, 1)
                    owner.has_gaps = True
        self._append(run)
        self._live += weight
        if self._horizon is not None and self._live > self._horizon:
            self._trim(self._horizon)
        if run.slot == self._full:
            live = [run for run in self._runs if run.weight]
            self._place(live, sum(run.slot < self._young_from for run in live))

    def remove(self, names: Sequence[Hashable]) -> None:
        """Remove these blocks, wherever they lie; those that are not here are skipped."""
        young, old = self._young, self._old
        if young.keys().isdisjoint(names) and old.keys().isdisjoint(names):
            return
        for name in names:
            run = young.pop(name, None) or old.pop(name, None)
            if run is not None and run.weight:
                self._lighten(run, 1)
                run.has_gaps = True

    def check(self) -> None:
        """Assert every invariant; O(runs² + blocks)."""
        weights = [run.weight for run in self._runs]
        assert self._live == sum(weights)
        assert all(run.slot >= self._young_from for run in self._young.values())
        assert all(run.slot < self._young_from for run in self._old.values() if run.weight)
        run_of = {name: run for name, run in self._old.items() if run.weight}
        assert run_of.keys().isdisjoint(self._young)
        run_of |= self._young
        assert all(self._runs[run.slot] is run for run in run_of.values())
        named = Counter(map(id, run_of.values()))
        for run in self._runs:
            assert named[id(run)] <= run.weight
            assert run.has_gaps or named[id(run)] == run.weight
            assert not named[id(run)] or run.slot >= self._oldest
            assert named[id(run)] == sum(run_of.get(name) is run for name in run.path)
            assert not run.weight or self._weights.above(run.slot) == sum(weights[run.slot + 1 :])

    def _end_of(self, run: _Run, path: Path, at: int) -> int:
        """The first index from `at` on where the path and the rest of the run differ."""
        weight = run.weight
        differ = map(ne, path[at : at + weight], run.path[-weight:])
        return next(compress(count(at), differ), min(at + weight, len(path)))

    def _pop_scattered(self, run: _Run, names: dict[Hashable, _Run], path: Path, at: int) -> int:
        """Take blocks that are not simply the newest ones of the run; returns the index after them.

        names: those of the run's generation.
        """
        run.has_gaps = True
        while at < len(path) and names.get(path[at]) is run:
            del names[path[at]]
            at += 1
        return at

    def _trim(self, horizon: int) -> None:
        """Forget whole oldest runs; their weight stays in the tree, below all others."""
        runs, live, oldest = self._runs, self._live, self._oldest
        while live - (run := runs[oldest]).weight >= horizon:
            oldest += 1
            live -= run.weight
            run.weight = 0
            run.path = ()
        self._live, self._oldest = live, oldest
        if oldest >= self._young_from:
            self._old, self._young = self._young, {}
            self._young_from = len(self._weights)

    def _place(self, runs: list[_Run], num_old: int = 0) -> None:
        """Lay out only these runs, in their order; num_old: those of the older generation."""
        self._runs = [_Run((), 0, 0)]
        self._weights = Weights()  # with those of runs that were trimmed
        self._oldest = 1
        self._young_from = 1 + num_old
        self._full = 2 * len(runs) + _SPARE  # the last slot
        for run in runs:
            if run.weight:
                run.slot = len(self._runs)
                self._append(run)

    def _append(self, run: _Run) -> None:
        self._runs.append(run)
        self._weights.append(run.weight)

    def _lighten(self, run: _Run, blocks: int) -> None:
        run.weight -= blocks
        self._live -= blocks
        self._weights.add(run.slot, -blocks)
