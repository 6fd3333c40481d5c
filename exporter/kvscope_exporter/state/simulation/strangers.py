"""Blocks of sequences that ran before we watched: who holds them is not known, only which they are.

Every pool holds the same ones, until the real one gives them back.
"""

from collections.abc import Iterable, Sequence

from kvscope_events.events import PoolSnapshot
from kvscope_events.names import CONTENT_BYTES, group_of
from kvscope_exporter.state.simulation.coordinator import Coordinator
from kvscope_exporter.state.simulation.pool import Pool
from kvscope_exporter.state.simulation.runs import UNNAMED, UNPLACED, Run


class Strangers:
    def __init__(self, pools: Sequence[Coordinator]) -> None:
        self._pools = pools
        self._references: dict[int, int] = {}  # by block id, of unknown sequences
        self._held: list[dict[int, Run]] = [{} for _ in pools]

    def __len__(self) -> int:
        return len(self._references)

    def tables(self) -> list[list[Run]]:
        """Their blocks, by pool."""
        return [list(held.values()) for held in self._held]

    def begin(self, snapshot: PoolSnapshot) -> None:
        """Put all that the real pool holds into every pool, as far as it fits."""
        names = snapshot.hashes
        for block, references in enumerate(snapshot.ref_counts):
            if references:
                self.take([block])
                self._references[block] = references
                if names[block] is not None:
                    self.name([block], [names[block]])  # type: ignore[list-item]
        idle = [name for name in map(names.__getitem__, snapshot.lru) if name is not None]
        for coordinator in self._pools:
            pool = coordinator.pool
            for name in idle:
                pool.take(1)
                pool.release(_named(pool, name))
            pool.handed_out = 0
            pool.has_owed = False

    def take(self, blocks: Iterable[int]) -> None:
        """An unknown sequence got these blocks."""
        for block in blocks:
            self._references[block] = 1
            for coordinator, held in zip(self._pools, self._held, strict=True):
                coordinator.pool.take(1)
                held[block] = UNNAMED

    def name(self, blocks: Sequence[int], names: Sequence[bytes]) -> None:
        """Blocks of an unknown sequence became findable."""
        for block, name in zip(blocks, names, strict=False):
            if block not in self._references:
                continue
            for coordinator, held in zip(self._pools, self._held, strict=True):
                if held[block] is UNNAMED:
                    (held[block],) = _named(coordinator.pool, name)

    def release(self, blocks: Iterable[int]) -> None:
        """An unknown sequence gave back one reference of each."""
        for block in blocks:
            left = self._references.get(block, 0) - 1
            if left > 0:
                self._references[block] = left
            elif left == 0:
                del self._references[block]
                for coordinator, held in zip(self._pools, self._held, strict=True):
                    coordinator.pool.release([held.pop(block)])


def _named(pool: Pool, name: bytes) -> list[Run]:
    runs: list[Run] = []
    pool.name(group_of(name), UNPLACED, [name[:CONTENT_BYTES]], runs)
    return runs
