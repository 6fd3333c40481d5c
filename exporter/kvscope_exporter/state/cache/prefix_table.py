"""The heaviest prefixes in fixed memory: a space-saving table of counters.

Metwally, Agrawal, El Abbadi 2005. A prefix without a counter takes over the one with the least
weight, and with it that weight as its error: it was credited with at most that much before. The
weights sum to everything that was credited, so with k counters an error is at most a k-th of it,
and every prefix that got more than a k-th has a counter.
"""

from dataclasses import dataclass
from heapq import heappush, heapreplace

from kvscope_events.events import BlockHash

LABEL_DIGITS = 8
"""Digits of a name in its label: in one of 8,600 tables two of 1,000 prefixes share them."""


@dataclass(slots=True)
class Prefix:
    """Savings and losses of one prefix since it got this counter."""

    name: BlockHash
    """Name of its last block."""
    length_tokens: int
    """From the first token of the prompt."""
    error_tokens: int
    """Upper bound of the tokens that it was credited with before."""
    continues: BlockHash | None = None
    """The prefix that it continued at its last lookup; None: it began the prompt."""
    saved_tokens: int = 0
    lost_tokens: int = 0
    hits: int = 0
    """Lookups that found at least a part of it, beyond the prefix that it continues."""
    last_used_ns: int = 0
    """Time of its last lookup, on the producer's clock."""

    @property
    def weight(self) -> int:
        return self.error_tokens + self.saved_tokens + self.lost_tokens

    @property
    def credited_tokens(self) -> int:
        return self.saved_tokens

    @property
    def label(self) -> str:
        return label_of(self.name)


class PrefixTable:
    """At most `counters` prefixes. The caller adds to a prefix only what it was credited with."""

    def __init__(self, counters: int) -> None:
        self.prefixes: dict[BlockHash, Prefix] = {}
        self._counters = counters
        # One entry for each prefix, whose weight may have grown since.
        self._heap: list[tuple[int, BlockHash]] = []

    @property
    def least_weight(self) -> int:
        """Upper bound of the credit of a prefix without a counter; O(counters)."""
        if len(self.prefixes) < self._counters:
            return 0
        return min(prefix.weight for prefix in self.prefixes.values())

    def take(
        self, name: BlockHash, length_tokens: int, tokens: int
    ) -> tuple[Prefix, Prefix | None]:
        """A counter for a prefix without one, about to be credited with this many tokens.

        Also returns the prefix whose counter it was.
        """
        former = None
        if len(self.prefixes) < self._counters:
            prefix = Prefix(name, length_tokens, 0)
            heappush(self._heap, (tokens, name))
        else:
            former = self._lightest()
            del self.prefixes[former.name]
            prefix = Prefix(name, length_tokens, former.weight)
            heapreplace(self._heap, (former.weight + tokens, name))
        self.prefixes[name] = prefix
        return prefix, former

    def check(self) -> None:
        """Assert that the heap has each prefix once, and no entry above its weight; O(counters)."""
        assert sorted(name for _, name in self._heap) == sorted(self.prefixes)
        assert all(weight <= self.prefixes[name].weight for weight, name in self._heap)
        assert len(self.prefixes) <= self._counters

    def _lightest(self) -> Prefix:
        """The prefix with the least weight, whose entry is the first afterwards."""
        heap = self._heap
        while True:
            weight, name = heap[0]
            prefix = self.prefixes[name]
            if weight == prefix.weight:
                return prefix
            heapreplace(heap, (prefix.weight, name))


def label_of(name: BlockHash) -> str:
    """Short form of a name, for people."""
    return name[: LABEL_DIGITS // 2].hex()
