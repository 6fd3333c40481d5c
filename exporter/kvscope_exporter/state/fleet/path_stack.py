"""Paths in the order in which they were last asked for, and how deep in them a path lies.

A name stands for its block and all before it. So with a name all those before it are in the stack,
nearer the top; the part of a path that is left in a run is its end; and only the
first name of each run need be found. Where two paths part is found by bisection. A lookup thus
costs some microseconds however long its path is, and a name eight bytes where paths are arrays.

Paths that contradict each other are measured wrongly; all else stays right.
"""

from collections.abc import Hashable, Sequence

from kvscope_exporter.state.cache.run_stack import Segment, Weights

_SPARE = 4096
"""Slots of dead runs that are not worth a clean-up."""


class _Run:
    """The rest of one path: its names from `begin` on."""

    __slots__ = ("begin", "path", "slot")

    def __init__(self, path: Sequence[Hashable], slot: int) -> None:
        self.path = path
        self.begin = 0
        self.slot = slot

    def __len__(self) -> int:
        return len(self.path) - self.begin

    def common(self, path: Sequence[Hashable], at: int) -> int:
        """Names of path[at:] with which the run goes on; its first one does."""
        own, begin = self.path, self.begin
        same, different = 1, min(len(self), len(path) - at) + 1
        if different == 2 or own[begin + different - 2] == path[at + different - 2]:
            return different - 1
        while different - same > 1:
            middle = (same + different) // 2
            if own[begin + middle - 1] == path[at + middle - 1]:
                same = middle
            else:
                different = middle
        return same


class PathStack:
    """Whole oldest runs are forgotten once `horizon` names lie above them."""

    def __init__(self, horizon: int) -> None:
        self._horizon = horizon
        self._heads: dict[Hashable, _Run] = {}
        self._live = 0
        self._place([])

    def __len__(self) -> int:
        """Names in the stack."""
        return self._live

    def touch(self, path: Sequence[Hashable]) -> list[Segment]:
        """Put a path on top; returns where its leading names lay before.

        It is kept: it must not be changed afterwards.
        """
        if not path:
            return []
        found = self._find(path)
        segments = []
        for run, above, names in found:
            segments.append((above, names))
            self._lighten(run, names)
        if len(self._runs) > self._full:
            self._place([run for run in self._runs[self._oldest :] if len(run)])
        run = _Run(path, len(self._runs))
        self._append(run)
        self._heads[path[0]] = run
        self._live += len(path)
        while self._live - len(self._runs[self._oldest]) >= self._horizon:
            self._forget(self._runs[self._oldest])
            self._oldest += 1
        return segments

    def _find(self, path: Sequence[Hashable]) -> list[tuple[_Run, int, int]]:
        """The runs that hold its leading names: what lies above, and how many of them they hold."""
        heads, at, newer = self._heads, 0, len(self._runs)
        found = []
        while at < len(path):
            run = heads.get(path[at])
            if run is None or run.slot >= newer:  # names that contradict each other
                break
            newer = run.slot
            names = run.common(path, at)
            found.append((run, self._weights.above(run.slot), names))
            at += names
        return found

    def _lighten(self, run: _Run, names: int) -> None:
        """The run loses its first names."""
        self._behead(run)
        run.begin += names
        self._live -= names
        if len(run) < run.begin:  # else a rest of few names would keep a long path alive
            run.path, run.begin = run.path[run.begin :], 0
        if len(run):
            self._heads[run.path[run.begin]] = run
        self._weights.add(run.slot, -names)

    def _forget(self, run: _Run) -> None:
        """The run is too old; its weight stays in the tree, below all others."""
        if len(run):
            self._behead(run)
            self._live -= len(run)
            run.path, run.begin = (), 0

    def _behead(self, run: _Run) -> None:
        """It is not found any more, unless by a contradiction another run has its first name."""
        head = run.path[run.begin]
        if self._heads.get(head) is run:
            del self._heads[head]

    def _place(self, runs: Sequence[_Run]) -> None:
        """Lay out only these runs, in their order."""
        self._runs = [_Run((), 0)]
        self._weights = Weights()
        self._oldest = 1
        self._full = 2 * len(runs) + _SPARE
        for run in runs:
            run.slot = len(self._runs)
            self._append(run)

    def _append(self, run: _Run) -> None:
        self._runs.append(run)
        self._weights.append(len(run))
