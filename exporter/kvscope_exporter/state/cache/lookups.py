"""Counts of the prefix cache's queries, its hits, and the causes of its misses."""

from collections.abc import Sequence

from kvscope_events.events import BlockHash, PrefixLookup
from kvscope_exporter.state.cache.blocks import ResidentNames
from kvscope_exporter.state.cache.evicted import EvictedNames


class Lookups:
    """Queried and hit by phase, missed by cause; the caller keeps the names."""

    def __init__(self) -> None:
        self.queried_tokens = {"first": 0, "resumed": 0}
        self.hit_tokens = {"first": 0, "resumed": 0}
        self.queried_blocks = {"first": 0, "resumed": 0}
        self.hit_blocks = {"first": 0, "resumed": 0}
        self.missed = dict.fromkeys(
            ("cold", "evicted", "forgotten", "unreachable", "vetoed", "partial"), 0
        )

    def ask(self, event: PrefixLookup, block_size: int) -> None:
        """Count a lookup, and the partial block at its end; needs no knowledge of names."""
        phase = "resumed" if event.resumed else "first"
        full, hits = len(event.hashes), event.hit_blocks
        if not event.named:
            full = (event.queried_tokens - 1) // block_size
        partial = event.queried_tokens > full * block_size
        self.queried_tokens[phase] += event.queried_tokens
        self.hit_tokens[phase] += hits * block_size
        self.queried_blocks[phase] += full + partial
        self.hit_blocks[phase] += hits
        self.missed["partial"] += partial

    def miss(
        self, names: Sequence[BlockHash], resident: ResidentNames, evicted: EvictedNames
    ) -> int:
        """Count full blocks that were queried and not found; returns how many were `evicted`.

        Vetoed blocks follow the hits without a break and are resident: the server could have used
        them had layers of another kind not lacked their part, or a drafter.
        """
        held, forgotten = resident.names, evicted.forgotten
        vetoed = 0
        while vetoed < len(names) and names[vetoed] in held:
            vetoed += 1
        # Nearly always the rest is gone as a whole, so each question is one operation on sets.
        rest = names[vetoed:]
        unreachable = 0
        if not held.isdisjoint(rest):
            rest = [name for name in rest if name not in held]
            unreachable = len(names) - vetoed - len(rest)
        unknown = evicted.missing(rest)
        old = sum(map(forgotten.__contains__, unknown))
        missed = self.missed
        missed["vetoed"] += vetoed
        missed["unreachable"] += unreachable
        missed["evicted"] += len(rest) - len(unknown)
        missed["forgotten"] += old
        missed["cold"] += len(unknown) - old
        return len(rest) - len(unknown)
