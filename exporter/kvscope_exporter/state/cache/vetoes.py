"""Hits of a pool of several groups: what each kind of layers alone would have allowed, and which
kind refused what another had.

A lookup hits where all groups have their part: full attention all blocks, a sliding window the last
ones before the end of the hit, a state the one at its end.
"""

from collections.abc import Sequence

from kvscope_events.events import BlockHash, CacheGroup, PoolCreated, PoolSnapshot, PrefixLookup
from kvscope_events.names import in_group
from kvscope_exporter.state.cache.blocks import NEVER, ResidentNames
from kvscope_exporter.state.cache.evicted import EvictedNames

VETO_CAUSES = ("evicted", "never_kept", "unaligned", "unknown")
_SPARSEST_FIRST: tuple[str, ...] = ("state", "sliding_window", "full_attention")
"""Among kinds that allow equally little, the first is taken for the one that refused."""


class Vetoes:
    """Counts first lookups only, and only of pools with several groups."""

    def __init__(self) -> None:
        self.groups: list[CacheGroup] = []
        """Those of the pool; empty where it has one."""
        self.hit_tokens: dict[str, int] = {}
        """Tokens that each kind of the pool alone would have allowed."""
        self.vetoed_tokens: dict[tuple[str, ...], int] = {}
        """Tokens that some kind had and the lookup did not find, by the kind that refused."""
        self.known = False
        """Whether the producer reports what each group alone would have allowed."""

    def begin(self, event: PoolCreated | PoolSnapshot) -> None:
        """A pool is there. The counters of kinds that it has not end, those that it has go on."""
        self.groups = event.groups if len(event.groups) > 1 else []
        kinds = {group.kind for group in self.groups}
        ordered = [kind for kind in reversed(_SPARSEST_FIRST) if kind in kinds]
        self.hit_tokens = {kind: self.hit_tokens.get(kind, 0) for kind in ordered}
        self.vetoed_tokens = {
            (kind, cause): self.vetoed_tokens.get((kind, cause), 0)
            for kind in ordered
            for cause in VETO_CAUSES
        }

    def look_up(
        self,
        event: PrefixLookup,
        block_size: int,
        resident: ResidentNames | None,
        evicted: EvictedNames,
    ) -> tuple[int, int | None]:
        """Comes before the lookup changes anything; resident: None while names are not known.

        Returns how many blocks behind the hits another kind refused, and when what it lacks was
        evicted: on the producer's clock, NEVER for not known, None if it was not evicted.
        """
        if not self.groups:
            return 0, None
        if len(event.group_hit_tokens) != len(self.groups):
            return 0, None
        self.known = True
        most = len(event.hashes) * block_size
        found = [min(tokens, most) for tokens in event.group_hit_tokens]
        alone = {
            kind: min(
                tokens
                for tokens, group in zip(found, self.groups, strict=True)
                if group.kind == kind
            )
            for kind in self.hit_tokens
        }
        hit = min(event.hit_blocks * block_size, most)
        longest = max(hit, *alone.values())
        refuses = min((kind for kind in _SPARSEST_FIRST if kind in alone), key=alone.__getitem__)
        cause, gone_ns = "unknown", None
        if longest > hit and resident is not None:
            needed = self._needed(event, refuses, longest, block_size, evicted)
            cause, gone_ns = _why(needed, resident, evicted)
        if not event.resumed:
            for kind, tokens in alone.items():
                self.hit_tokens[kind] += tokens
            self.vetoed_tokens[refuses, cause] += longest - hit
        return (longest - hit) // block_size, gone_ns

    def _needed(
        self,
        event: PrefixLookup,
        kind: str,
        tokens: int,
        block_size: int,
        evicted: EvictedNames,
    ) -> list[BlockHash]:
        """Names that the groups of this kind need for a hit of these tokens, or of those of them
        that fill whole blocks."""
        path, names = event.hashes, list[BlockHash]()
        for index, (group, had) in enumerate(zip(self.groups, event.group_hit_tokens, strict=True)):
            if group.kind != kind or had >= tokens:
                continue
            end = tokens // group.block_size
            begin = had // group.block_size
            if kind == "state":
                begin = end - 1
                if tokens % group.block_size:  # a state is also kept where a prompt ended
                    inside = in_group(path[tokens // block_size - 1], index)
                    if evicted.time_ns(inside) is not None:
                        names.append(inside)
            elif group.window is not None:
                begin = end - -(-(group.window - 1) // group.block_size)
            step = max(1, group.block_size // block_size)
            for block in range(max(0, begin), end):
                if (place := (block + 1) * step - 1) < len(path):
                    names.append(in_group(path[place], index))
        return names


def _why(
    needed: Sequence[BlockHash], resident: ResidentNames, evicted: EvictedNames
) -> tuple[str, int | None]:
    """The reason why a kind that needs these allowed no hit, and when it lost the first."""
    held, forgotten = resident.names, evicted.forgotten
    lacks = [name for name in needed if name not in held]
    if not lacks:
        return "unaligned", None
    times = [time_ns for time_ns in evicted.times_ns(lacks) if time_ns is not None]
    if times:
        return "evicted", NEVER if NEVER in times else min(times)
    return ("evicted" if any(name in forgotten for name in lacks) else "never_kept"), None
