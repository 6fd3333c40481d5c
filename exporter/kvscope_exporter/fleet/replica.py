"""One engine as a fleet sees it: what it holds, and what its own lookups found."""

import time
from array import array
from dataclasses import dataclass, field
from sys import byteorder
from typing import NamedTuple

from kvscope_exporter.state.fleet import Waterfall
from kvscope_exporter.state.fleet.projected import (
    NAME_BYTES,
    FirstLookup,
    Lost,
    Part,
    PoolReset,
    RemovedNames,
    StepEvents,
    StoredNames,
    numbers_of,
)


class OwnSteps(NamedTuple):
    """Sums in blocks over one replica's lookups."""

    own: int = 0
    best: int = 0
    asked: int = 0


class ResidentBlocks(NamedTuple):
    """Blocks with a name over all pools."""

    distinct: int
    duplicate: int
    """They hold what a further block holds as well."""


class ContradictionError(Exception):
    """A sidecar contradicts itself: `str()` says how."""


@dataclass(slots=True, eq=False)
class Space:
    """Replicas whose names can be compared."""

    name_space: str
    model_name: str
    block_size: int
    """Tokens of a name."""
    hash_algorithm: str | None
    waterfall: Waterfall
    bytes_per_block: int | None = None
    """None: not known."""
    replicas: int = 0
    """Those that are counted now."""
    pool_blocks: int = 0
    """The sum over their pools."""
    began_ns: int = field(default_factory=time.monotonic_ns)
    """When the first of them was seen."""

    def resident(self) -> ResidentBlocks | None:
        """None: of a sample, which has all of what many share, and a part of the rest."""
        holders = self.waterfall.holders
        if self.waterfall.sample is not None:
            return None
        distinct = holders.distinct_names
        return ResidentBlocks(distinct, holders.resident_blocks - distinct)


@dataclass(slots=True, eq=False)
class Replica:
    """Lookups of a replica whose content is not known are not counted."""

    sidecar: str
    server: str
    engine: str
    session: str
    space: Space
    num_blocks: int
    next_seq: int | None = None
    """Number of the next moment; None: there was no answer yet."""
    slot: int | None = None
    """None: what it holds is not known."""
    own: int = 0
    best: int = 0
    asked: int = 0
    """Sums over its own lookups that were folded."""

    @property
    def steps(self) -> OwnSteps:
        """Sums over its own lookups."""
        one_of = self.space.waterfall.one_of
        return OwnSteps(self.own * one_of, self.best * one_of, self.asked * one_of)

    def apply(self, moment: StepEvents) -> None:
        """Raises ContradictionError."""
        waterfall, holders = self.space.waterfall, self.space.waterfall.holders
        for event in moment.events:
            match event:
                case FirstLookup(names, own):
                    if own > len(names) // NAME_BYTES:
                        raise ContradictionError("found more names than were looked up")
                    if self.slot is None:
                        continue
                    found = waterfall.look_up(_numbers(names), own)
                    if found is not None:
                        self.own += own
                        self.best += found.best
                        self.asked += found.asked
                case StoredNames(names, parent) if self.slot is not None:
                    before = int.from_bytes(parent, byteorder) if parent else None
                    waterfall.store(self.slot, _numbers(names).tolist(), before)
                    self._check(holders.resident_of(self.slot))
                case RemovedNames(names) if self.slot is not None:
                    holders.remove(self.slot, _numbers(names).tolist())
                case PoolReset():
                    self.hold(b"")
                case Lost():
                    self.lose()
                case _:  # of a replica whose content is not known
                    pass

    def hold(self, names: bytes) -> None:
        """These are all the names that it holds. Raises ContradictionError."""
        numbers = _numbers(names).tolist()
        self._check(len(numbers))
        if self.slot is None:
            self.slot = self.space.waterfall.holders.join()
            self.space.replicas += 1
            self.space.pool_blocks += self.num_blocks
        self.space.waterfall.holders.replace(self.slot, numbers)

    def lose(self) -> None:
        """From now on its content is unknown."""
        if self.slot is not None:
            self.space.waterfall.holders.leave(self.slot)
            self.space.replicas -= 1
            self.space.pool_blocks -= self.num_blocks
            self.slot = None

    def is_of(self, part: Part) -> bool:
        """Whether this is that engine, in the same life, with the same names and pool."""
        return (
            self.session == part.session
            and self.space.name_space == part.name_space
            and self.num_blocks == part.num_blocks
        )

    def _check(self, names: int) -> None:
        if names > self.num_blocks:
            raise ContradictionError(f"more names than its {self.num_blocks} blocks can have")


def _numbers(names: bytes) -> "array[int]":
    try:
        return numbers_of(names)
    except ValueError:
        raise ContradictionError("a part of a name") from None
