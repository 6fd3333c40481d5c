"""Blocks that nobody references, the newest release first, and how deep the blocks of a path lie.

Blocks form a tree: a path names its blocks from the root, and a block can be found only while all
blocks before it can. Whoever references a block references those before it too, so along a path
come first referenced blocks, then blocks of this stack ever deeper in it, then unknown ones. Blocks
that were released together stay neighbours in the order of their path, and a lookup takes the
newest of them. So the stack is a list of runs, one for each release, and a lookup costs one sum
over newer runs for each run that it touches, where a list of blocks would need one for each block.
"""

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Sequence
from itertools import islice, repeat

_SPARE = 4096
"""Dead runs that are not worth a clean-up."""

Path = Sequence[Hashable]
Segment = tuple[int, int]
"""Consecutive blocks of a path that lie one below the other: the number of blocks of the stack
above the first of them, and their own number."""


class _Run:
    """What is left of one release; without weight it is dead, and no name leads to it."""

    __slots__ = ("has_gaps", "path", "slot", "weight")

    def __init__(self, path: Path, weight: int, slot: int, has_gaps: bool = False) -> None:
        self.path = path
        self.weight = weight
        self.slot = slot
        self.has_gaps = has_gaps
        """Its blocks are not simply the last ones of the path."""


class RunStack:
    """Names are anything that can be hashed. The names of a path differ: of others one counts.

    A path that contradicts the tree is measured wrongly, and leaves all weights right.

    horizon: at least 1; whole oldest runs are forgotten once so many blocks lie above them, which
    changes nothing for the blocks that stay; None: nothing is forgotten.
    """

    def __init__(self, horizon: int | None = None) -> None:
        self._horizon = horizon
        self._oldest = 1  # the slot of the oldest run that was not trimmed
        self.clear()

    def clear(self) -> None:
        """Forget all blocks."""
        self._run_of: dict[Hashable, _Run] = {}
        self._oldest = 1  # the slot of the oldest run
        self._live = 0
        self._place([])

    def fill(self, names: Iterable[Hashable]) -> None:
        """Replace all blocks by these, the newest first, each released by itself.

        Of blocks with one name the newest counts.
        """
        newest = list(islice(dict.fromkeys(names), self._horizon))
        newest.reverse()
        runs = [_Run((name,), 1, 0) for name in newest]
        self._run_of = dict(zip(newest, runs, strict=True))
        self._live = len(runs)
        self._place(runs)

    def __len__(self) -> int:
        """Blocks in the stack, those without a name included."""
        return self._live

    def __contains__(self, name: Hashable) -> bool:
        return name in self._run_of

    def take(self, path: Path, start: int = 0) -> list[Segment]:
        """Remove the leading blocks of path[start:] that are here; all are measured before."""
        get, tree, total = self._run_of.get, self._tree, self._total
        found = []
        at, end, newer = start, len(path), len(tree)
        while at < end:
            run = get(path[at])
            if run is None or run.slot >= newer:
                break
            # Most paths either go on through all that is left of the run, or end in it.
            stop = at + run.weight
            if stop > end:
                stop = end
            if get(path[stop - 1]) is not run or run.has_gaps:
                stop = self._end_of(run, path, at, stop)
            newer = slot = run.slot
            below = 0
            while slot:
                below += tree[slot]
                slot &= slot - 1
            found.append((run, total - below, stop - at))
            at = stop
        if not found:
            return []
        taken = list(map(self._run_of.pop, path[start:at], repeat(None)))
        size, blocks, segments, end = len(tree), 0, [], 0
        for run, _, count in found:
            begin, end = end, end + count
            if (taken if count == at - start else taken[begin:end]).count(run) != count:
                return self._take_strange(found, taken)
            if not run.has_gaps and run.path[-run.weight] != path[start + begin]:
                run.has_gaps = True  # not its newest end
        for run, above, count in found:
            segments.append((above, count))
            run.weight -= count
            if not run.weight:
                run.path = ()
            blocks += count
            slot = run.slot
            while slot < size:
                tree[slot] -= count
                slot += slot & -slot
        self._live -= blocks
        self._total -= blocks
        return segments

    def push(self, path: Path, unnamed: int = 0) -> None:
        """Put one run on top: path[0] newest, the others below it in their order, `unnamed` last.

        Of two blocks with one name only the newer counts. The stack keeps the path: it must not be
        changed afterwards.
        """
        count = len(path)
        weight = count + unnamed
        if not weight:
            return
        run = _Run(path, weight, len(self._tree), unnamed > 0)
        named = len(self._run_of)
        deque(map(self._run_of.setdefault, path, repeat(run)), maxlen=0)
        if len(self._run_of) != named + count:
            path = run.path = list(dict.fromkeys(path))
            weight = run.weight = len(path) + unnamed
            for name in path:
                owner = self._run_of[name]
                if owner is not run:
                    self._run_of[name] = run
                    self._lighten(owner, 1)
                    owner.has_gaps = True
        self._append(run)
        self._live += weight
        if self._horizon is not None and self._live > self._horizon:
            self._trim(self._horizon)
        if run.slot == self._full:
            self._place([run for run in self._runs if run.weight])

    def remove(self, names: Iterable[Hashable]) -> None:
        """Remove these blocks, wherever they lie; those that are not here are skipped."""
        pop = self._run_of.pop
        for name in names:
            run = pop(name, None)
            if run is not None:
                self._lighten(run, 1)
                run.has_gaps = True

    def check(self) -> None:
        """Assert every invariant; O(runs² + blocks)."""
        weights = [run.weight for run in self._runs]
        assert self._live == sum(weights)
        assert all(self._runs[run.slot] is run for run in self._run_of.values())
        named = Counter(map(id, self._run_of.values()))
        for run in self._runs:
            assert named[id(run)] <= run.weight
            assert not named[id(run)] or run.slot >= self._oldest
            assert named[id(run)] == sum(self._run_of.get(name) is run for name in run.path)
            assert not run.weight or self._above(run) == sum(weights[run.slot + 1 :])

    def _take_strange(
        self, found: list[tuple[_Run, int, int]], taken: list[_Run | None]
    ) -> list[Segment]:
        """Finish a removal whose blocks did not lie in the runs that were found for them."""
        owners = Counter(run for run in taken if run is not None)
        for run, count in owners.items():
            self._lighten(run, count)
            run.has_gaps = True
        return [(above, owners[run]) for run, above, _ in found]

    def _end_of(self, run: _Run, path: Sequence[Hashable], at: int, limit: int) -> int:
        """The first index after `at` where the path is not in this run; at most `limit`."""
        get = self._run_of.get
        if run.has_gaps:
            while at < limit and get(path[at]) is run:
                at += 1
            return at
        low, step = at, 1
        while low + step < limit and get(path[low + step]) is run:
            low, step = low + step, 2 * step
        high = min(low + step, limit)
        while high - low > 1:  # path[low] is in the run; path[high] is not, or is the limit
            middle = (low + high) // 2
            if get(path[middle]) is run:
                low = middle
            else:
                high = middle
        return high

    def _trim(self, horizon: int) -> None:
        """Forget whole oldest runs; their weight stays in the tree, below all others."""
        runs, run_of, live, oldest = self._runs, self._run_of, self._live, self._oldest
        while live - (run := runs[oldest]).weight >= horizon:
            oldest += 1
            if not run.weight:
                continue
            path = run.path
            if run.has_gaps:
                path = [name for name in path if run_of.get(name) is run]
            elif run.weight < len(path):  # those before were taken
                path = path[len(path) - run.weight :]
            owners = list(map(run_of.pop, path, repeat(None)))
            if owners.count(run) != len(path):  # blocks had been taken in another order
                run_of.update((n, o) for n, o in zip(path, owners, strict=True) if o is not None)
                for name in run.path:
                    if run_of.get(name) is run:
                        del run_of[name]
            live -= run.weight
            run.weight = 0
            run.path = ()
        self._live, self._oldest = live, oldest

    # A Fenwick tree over the runs, the oldest in slot 1: tree[i] is the weight in the slots
    # (i - lowest bit of i, i]. It grows at its end, so a new run costs O(1).

    def _place(self, runs: list[_Run]) -> None:
        """Lay out these runs alone, in their order."""
        self._runs = [_Run((), 0, 0)]
        self._tree = [0]
        self._total = 0  # weight in the tree, with runs that were trimmed
        self._oldest = 1
        self._full = 2 * len(runs) + _SPARE  # the last slot
        for run in runs:
            if run.weight:
                run.slot = len(self._runs)
                self._append(run)

    def _append(self, run: _Run) -> None:
        tree, weight = self._tree, run.weight
        self._runs.append(run)
        self._total += weight
        child = run.slot - 1
        first = run.slot & child
        while child > first:
            weight += tree[child]
            child &= child - 1
        tree.append(weight)

    def _lighten(self, run: _Run, blocks: int) -> None:
        tree, slot, size = self._tree, run.slot, len(self._tree)
        run.weight -= blocks
        self._live -= blocks
        self._total -= blocks
        while slot < size:
            tree[slot] -= blocks
            slot += slot & -slot

    def _above(self, run: _Run) -> int:
        slot, below = run.slot, 0
        while slot:
            below += self._tree[slot]
            slot &= slot - 1
        return self._total - below
