"""Counts of what the prefix cache was asked for, what it held, and why it did not hold the rest."""

from collections.abc import Iterable

from exporter.fold.cache.evicted import Evicted
from exporter.fold.cache.resident import Resident
from kvscope_events.events import BlockHash, PrefixLookup


class Lookups:
    """Queried and hit by phase, missed by cause; the caller keeps the names."""

    def __init__(self) -> None:
        self.queried_tokens = {"first": 0, "resumed": 0}
        self.hit_tokens = {"first": 0, "resumed": 0}
        self.queried_blocks = {"first": 0, "resumed": 0}
        self.hit_blocks = {"first": 0, "resumed": 0}
        self.missed = {"cold": 0, "evicted": 0, "forgotten": 0, "unreachable": 0, "partial": 0}

    def ask(self, event: PrefixLookup, block_size: int) -> None:
        """Count a lookup, and the partial block at its end; needs no knowledge of names."""
        phase = "resumed" if event.resumed else "first"
        full, hits = len(event.hashes), event.hit_blocks
        partial = event.queried_tokens > full * block_size
        self.queried_tokens[phase] += event.queried_tokens
        self.hit_tokens[phase] += hits * block_size
        self.queried_blocks[phase] += full + partial
        self.hit_blocks[phase] += hits
        self.missed["partial"] += partial

    def miss(self, names: Iterable[BlockHash], resident: Resident, evicted: Evicted) -> int:
        """Count full blocks that were asked for and not found; returns how many were `evicted`."""
        held, forgotten = resident.names, evicted.forgotten
        unreachable = gone = old = cold = 0
        for name in names:
            if name in held:
                unreachable += 1
            elif name in evicted:
                gone += 1
            elif name in forgotten:
                old += 1
            else:
                cold += 1
        missed = self.missed
        missed["unreachable"] += unreachable
        missed["evicted"] += gone
        missed["forgotten"] += old
        missed["cold"] += cold
        return gone
