"""Top prefixes: which shared beginnings of prompts save most tokens, and which were lost.

A lookup *reaches* as far as its blocks were ever cached: those found, and those right behind them
that had been evicted. Where a lookup stops reaching, its prompt parts from all earlier ones: there
a prefix ends. On its way it passes the ends that are known from earlier lookups, so its reach falls
into parts, and each part belongs to the prefix at whose end it ends:

    system prompt | first turn | second turn | new question
    ^ reached by every conversation            ^ never seen: belongs to no prefix
                  ^ reached by this one

A part's found tokens were saved by its prefix, its evicted ones lost; those that a tier below the
pool or a connector supplied are neither. So every token that a first lookup found belongs to one
prefix, and a system prompt is distinguished from the conversations below it.
"""

from collections.abc import Sequence
from itertools import compress

from kvscope_events.events import BlockHash
from kvscope_exporter.state.cache.prefix_table import PrefixTable
from kvscope_exporter.state.shown import TopOwners

COUNTERS = 1024
"""Prefixes with a counter, about 400 kB: each error is at most a 1,024th of all credited tokens."""


class Prefixes:
    """Counts first lookups only. Hits count even while the names are unknown after lost batches,
    but then nothing is known to be lost, and a lookup reaches only as far as it hits.
    """

    def __init__(self, counters: int = COUNTERS) -> None:
        self.table = PrefixTable(counters)
        self.shown = TopOwners()

    def look_up(
        self,
        path: Sequence[BlockHash],
        hit_blocks: int,
        evicted_ns: Sequence[int | None],
        *,
        loaded_blocks: int = 0,
        block_size: int,
        time_ns: int,
    ) -> None:
        """A lookup found this many leading blocks, and got those behind them from elsewhere.

        evicted_ns: for each missed block the time of its eviction, None if it was not evicted, or
        was loaded.
        """
        prefixes = self.table.prefixes
        hits = min(hit_blocks, len(path))
        self.shown.other += (hit_blocks - hits) * block_size  # found without a name
        held = min(hits + loaded_blocks, len(path))
        reach = held + _leading(evicted_ns[held - hits :])
        if not reach:
            return
        ends = list(compress(range(1, reach + 1), map(prefixes.__contains__, path)))
        if not ends or ends[-1] != reach:
            ends.append(reach)
        begin, above = 0, None
        for end in ends:
            found = max(0, min(end, hits) - begin)
            lost = max(0, end - max(begin, held))
            name = path[end - 1]
            prefix = prefixes.get(name)
            if prefix is None:  # the last one only
                tokens = (found + lost) * block_size
                if not tokens:
                    return
                prefix, former = self.table.take(name, end * block_size, tokens)
                if former is not None:
                    self.shown.remove(former)
            prefix.continues = above
            prefix.last_used_ns = time_ns
            prefix.lost_tokens += lost * block_size
            if found:
                prefix.hits += 1
                prefix.saved_tokens += found * block_size
                self.shown.credit(prefix, found * block_size)
            begin, above = end, name


def _leading(evicted_ns: Sequence[int | None]) -> int:
    """The number of leading blocks that were evicted."""
    for count, time_ns in enumerate(evicted_ns):
        if time_ns is None:
            return count
    return len(evicted_ns)
