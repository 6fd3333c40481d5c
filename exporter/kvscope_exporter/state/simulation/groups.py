"""A group of layers: the hits that it accepts, the blocks that it holds and those that it keeps.

The semantics of vLLM 0.32 (`single_type_kv_cache_manager.py`), in blocks that all groups have of
the same length.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kvscope_events.events import CacheGroup
from kvscope_exporter.state.simulation.pool import Pool
from kvscope_exporter.state.simulation.runs import Digest


@dataclass(frozen=True, slots=True)
class Layers:
    """Groups that are looked up together, since they have the same specification."""

    kind: str
    members: tuple[int, ...]
    block_size: int
    window: int
    """Tokens that a layer sees; 0: all."""
    at_chunk_ends: bool
    """States are written only at the ends of chunks, which end with blocks."""
    retention: int | None
    """Tokens from one kept place to the next; 0: only places where a request is known to resume;
    None: every block."""

    @property
    def needed(self) -> int:
        """Blocks before a place that a request must find there to resume."""
        if self.kind == "state":
            return 1
        return -(-(self.window - 1) // self.block_size)

    @property
    def keeps_all(self) -> bool:
        """Whether every block becomes findable, since the kept places leave none out."""
        if self.kind == "full_attention" or self.retention is None:
            return True
        return self.retention > 0 and self.retention // self.block_size <= self.needed

    def accept(self, pool: Pool, digests: Sequence[Digest], limit: int) -> int:
        """Up to which of the first `limit` blocks this could resume."""
        if self.kind == "full_attention":
            return min([pool.leading(group, digests, limit) for group in self.members])
        end, needed = limit, max(1, self.needed)
        while end:
            first = max([pool.trailing(group, digests, end, needed) for group in self.members])
            if end - first == needed or not first:
                return end
            end = first - 1  # the block before `first` is missing
        return 0

    def seen_from(self, tokens: int) -> int:
        """The first block that is still needed once these tokens are computed."""
        if self.kind == "full_attention":
            return 0
        window = 2 if self.kind == "state" else self.window
        return max(0, tokens - window + 1) // self.block_size

    def keeps(self, first: int, end: int, places: Sequence[int]) -> list[tuple[int, int]]:
        """The stretches of blocks in [first, end) that become findable, in order.

        places: tokens after which a later request may resume.
        """
        if self.keeps_all:
            return [(first, end)]
        needed = self.needed
        lasts = [place // self.block_size for place in places]
        if self.retention:
            period = self.retention // self.block_size
            lasts += range(first // period * period + period, end + needed, period)
        kept, done = [], first
        for last in sorted(lasts):
            begin, stop = max(done, last - needed), min(end, last)
            if begin < stop:
                kept.append((begin, stop))
                done = stop
        return kept


def layers_of(groups: Sequence[CacheGroup], retention: int | None) -> tuple[Layers, ...]:
    """In the order in which they are looked up: full attention first, else that of the pool."""
    members: dict[tuple[object, ...], list[int]] = {}
    for index, group in enumerate(groups):
        key = (group.kind, group.block_size, group.window, group.at_chunk_ends)
        members.setdefault(key, []).append(index)
    found = [
        Layers(
            group.kind,
            tuple(indices),
            group.block_size,
            group.window or 0,
            group.at_chunk_ends,
            retention,
        )
        for indices in members.values()
        for group in (groups[indices[0]],)
    ]
    return tuple(sorted(found, key=lambda layers: layers.kind != "full_attention"))
