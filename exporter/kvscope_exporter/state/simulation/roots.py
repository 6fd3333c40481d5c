"""A share of the prompts, chosen by their roots, to simulate where all would take too long.

A prompt's root is its first block that is not a beginning which many prompts share. Prompts
that can hit each other below it have the same root, so a pool of the same share of the size finds
for these what the whole pool finds for all. Blocks above the roots are in every sample.
"""

from collections.abc import Hashable, Sequence
from hashlib import blake2b
from itertools import takewhile
from operator import eq
from typing import Generic, NamedTuple, TypeVar

from kvscope_events.events import (
    BlocksAllocated,
    BlocksCached,
    BlocksReleased,
    EngineEvent,
    PrefixLookup,
)
from kvscope_exporter.state.simulation.follower import ENDS

WINDOW = 512
"""Prompts after which it is decided which beginnings are shared."""
SHARED_BY = WINDOW // 32
"""Prompts of a window that share a beginning, at least."""
REMEMBERED = 16
"""Windows after which a beginning that no prompt had is forgotten."""
_HASHES = 1 << 64
N = TypeVar("N", bound=Hashable)


class _Root(NamedTuple, Generic[N]):
    prompts: int
    common: Sequence[N]
    """Their common beginning so far."""


class Roots(Generic[N]):
    """The beginnings that prompts share, learnt from all of them. N: the type of a block's name."""

    def __init__(self) -> None:
        self.num_shared = 0
        """Blocks above the roots in the latest whole window."""
        self._shared: dict[N, int] = {}  # blocks above the roots; the window that last had it
        self.window = 0
        """Whole windows so far."""
        self._prompts = 0
        self._seen: dict[N, _Root[N]] = {}

    def above(self, names: Sequence[N]) -> int:
        """The number of blocks of a path above its root; all of them if it has none.

        With a block those before it are shared, and forgotten no sooner: so it can be bisected.
        """
        shared, first, end = self._shared, 0, len(names)
        while first < end:
            middle = (first + end) // 2
            if names[middle] in shared:
                first = middle + 1
            else:
                end = middle
        return first

    def is_shared(self, name: N) -> bool:
        """Whether it is a block above roots."""
        return name in self._shared

    def find(self, names: Sequence[N]) -> N | None:
        """The root of a prompt; None if it fills no block."""
        return names[min(self.above(names), len(names) - 1)] if names else None

    def learn(self, names: Sequence[N]) -> None:
        """One more prompt; the names are kept for a while, and must not change."""
        if not names:
            return
        window = self.window
        above = self.above(names)
        if above and self._shared[names[above - 1]] != window:
            self._shared.update(dict.fromkeys(names[:above], window))
        root = names[min(above, len(names) - 1)]
        known = self._seen.get(root)
        if known is None:
            self._seen[root] = _Root(1, names)
        else:
            count, common = known
            if len(common) > len(names) or common[-1] != names[len(common) - 1]:
                same = sum(1 for _ in takewhile(bool, map(eq, common, names)))
                common = common[:same]
            self._seen[root] = _Root(count + 1, common)
        self._prompts += 1
        if self._prompts == WINDOW:
            self._decide()

    def _decide(self) -> None:
        window, shared = self.window, self._shared
        for prompts, common in self._seen.values():
            if prompts >= SHARED_BY:
                shared.update(dict.fromkeys(common, window))
        self.num_shared = sum(1 for last in shared.values() if last == window)
        old = window - REMEMBERED
        self._shared = {name: last for name, last in shared.items() if last > old}
        self._seen.clear()
        self._prompts = 0
        self.window = window + 1


class Sample:
    """The prompts of `share` of the roots, by a hash of their names, and later events of these.

    Sequences that began before it are left out.
    """

    def __init__(self, roots: Roots[bytes], share: float) -> None:
        self._roots = roots
        self._limit = int(share * _HASHES)
        self._sequences: set[int | None] = set()

    def takes(self, event: EngineEvent) -> bool:
        """Whether the event concerns one of them, or no sequence at all."""
        if isinstance(event, PrefixLookup):
            self._sequences.discard(event.sequence)
            root = self._roots.find(event.hashes) or str(event.sequence).encode()
            digest = blake2b(root, digest_size=8).digest()
            if int.from_bytes(digest, "big") >= self._limit:
                return False
            self._sequences.add(event.sequence)
        elif isinstance(event, BlocksAllocated | BlocksCached):
            return event.sequence in self._sequences
        elif isinstance(event, BlocksReleased):
            if event.sequence not in self._sequences:
                return False
            if event.cause in ENDS:
                self._sequences.discard(event.sequence)
        return True
