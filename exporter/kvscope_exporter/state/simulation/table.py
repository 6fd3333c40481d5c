"""Blocks of one sequence in one group, in runs by their places."""

from collections.abc import Sequence

from kvscope_exporter.state.simulation.groups import Layers
from kvscope_exporter.state.simulation.pool import Pool
from kvscope_exporter.state.simulation.runs import Digest, Run


class Table:
    __slots__ = ("_end", "_kind", "_named", "group", "runs")

    def __init__(self, kind: Layers, group: int, found: int, runs: list[Run]) -> None:
        self._kind = kind
        self.group = group
        self.runs = runs
        """Blocks that are held, in order; those without a name have runs of their own."""
        self._end = found
        self._named = found
        """Blocks that have been considered for a name."""

    def grow(self, blocks: int) -> int:
        """Have this number of blocks; returns how many are taken from the pool."""
        first, runs = self._end, self.runs
        if blocks <= first:
            return 0
        self._end = blocks
        if self._kind.at_chunk_ends:
            first = blocks - 1
        if runs and runs[-1].names is None and runs[-1].end == first:
            runs[-1].end = blocks
        else:
            runs.append(Run(first, blocks))
        return blocks - first

    def name(self, pool: Pool, digests: list[Digest], blocks: int, places: Sequence[int]) -> None:
        """This number of leading blocks is full. places: tokens at which a request may resume."""
        first, end = self._named, min(blocks, self._end, len(digests))
        if first >= end:
            return
        self._named = end
        kept = self._kind.keeps(first, end, places)
        if not kept:
            return
        runs, blanks = self.runs, []
        while runs and runs[-1].end > first:
            blanks.append(runs.pop())
        for blank in reversed(blanks):
            place = blank.first
            for begin, stop in kept:
                begin, stop = max(begin, place), min(stop, blank.end)
                if begin < stop:
                    if place < begin:
                        runs.append(Run(place, begin))
                    pool.name(self.group, begin, digests[begin:stop], runs)
                    place = stop
            if place < blank.end:
                runs.append(Run(place, blank.end))

    def skip(self, pool: Pool, tokens: int) -> None:
        """Give back what is not seen any more once these tokens are computed."""
        end, runs, gone = self._kind.seen_from(tokens), self.runs, []
        while runs and runs[0].first < end:
            if runs[0].end <= end:
                gone.append(runs.pop(0))
            else:
                runs[:1] = runs[0].halves or runs[0].cut(end, 1)
        if gone:
            pool.release(gone)
