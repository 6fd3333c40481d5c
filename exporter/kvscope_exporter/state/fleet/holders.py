"""The replicas that hold each name: an integer for each name, with one bit for each replica.

The longest prefix that one replica holds is where the AND of these integers becomes zero, however
many replicas there are. The integers are shared: as many exist as there are sets of replicas that
hold the same content.
"""

from collections.abc import Hashable, Sequence
from itertools import takewhile

_SPARE = 1024


class Holders:
    """A replica is known by its slot, the number of its bit; slots are used again."""

    def __init__(self) -> None:
        self._masks: dict[Hashable, int] = {}
        self._shared: dict[int, int] = {}
        """One object for each mask. Emptied when it has grown beyond what may be in use."""
        self._free: list[int] = []
        self._resident: list[int] = []
        """By slot: blocks with a name; -1: no replica."""
        self._again: list[dict[Hashable, int]] = []
        """By slot: how many further blocks have a name that one has already."""

    @property
    def distinct_names(self) -> int:
        """Names that at least one replica holds."""
        return len(self._masks)

    @property
    def resident_blocks(self) -> int:
        """Blocks with a name, over all replicas."""
        return sum(resident for resident in self._resident if resident > 0)

    def resident_of(self, slot: int) -> int:
        """Blocks with a name of one replica."""
        return self._resident[slot]

    def join(self) -> int:
        """The slot of a new replica, which holds nothing."""
        if self._free:
            slot = self._free.pop()
        else:
            slot = len(self._resident)
            self._resident.append(0)
            self._again.append({})
        self._resident[slot] = 0
        return slot

    def leave(self, slot: int) -> None:
        """Forget a replica, and all that it holds."""
        self.clear(slot)
        self._resident[slot] = -1
        self._free.append(slot)

    def store(self, slot: int, names: Sequence[Hashable]) -> None:
        """Blocks of a replica became findable; several may have one name."""
        masks, shared, bit = self._masks, self._shared, 1 << slot
        again = self._again[slot]
        self._resident[slot] += len(names)
        before: int | None = None
        after = shared.setdefault(bit, bit)
        for name, mask in zip(names, map(masks.get, names), strict=True):
            if mask is not before:  # neighbours are mostly held by the same replicas
                held = mask or 0
                if held & bit:
                    again[name] = again.get(name, 0) + 1
                    continue
                before, after = mask, shared.setdefault(held | bit, held | bit)
            masks[name] = after
        if len(shared) > _SPARE + len(masks):
            shared.clear()

    def remove(self, slot: int, names: Sequence[Hashable]) -> None:
        """As many blocks of a replica lost these names; those that it does not have are skipped."""
        masks, shared, bit = self._masks, self._shared, 1 << slot
        again = self._again[slot]
        strangers = 0
        before: int | None = -1
        after = 0
        for name, mask in zip(names, map(masks.get, names), strict=True):
            if again or mask is not before:  # neighbours are mostly held by the same replicas
                if mask is None or not mask & bit:
                    strangers += 1
                    continue
                if name in again:
                    again[name] -= 1
                    if not again[name]:
                        del again[name]
                    continue
                before, after = mask, shared.setdefault(mask ^ bit, mask ^ bit)
            if after:
                masks[name] = after
            else:
                del masks[name]
        self._resident[slot] -= len(names) - strangers

    def replace(self, slot: int, names: Sequence[Hashable]) -> None:
        """A snapshot: the replica holds these, and nothing else."""
        self.clear(slot)
        self.store(slot, names)

    def clear(self, slot: int) -> None:
        """The replica holds nothing, or it is not known what."""
        self._again[slot].clear()
        if self._resident[slot] > 0:
            bit = 1 << slot
            self.remove(slot, [name for name, mask in self._masks.items() if mask & bit])
            self._resident[slot] = 0

    def prefixes(self, names: Sequence[Hashable]) -> tuple[int, int]:
        """Leading names that one replica holds, and those that some replica or other holds."""
        masks = self._masks
        common, last = -1, -1
        for best, mask in enumerate(map(masks.get, names)):
            if mask is not last:
                if mask is None:
                    return best, best
                common &= mask
                if not common:
                    break
                last = mask
        else:
            return len(names), len(names)
        return best, best + sum(1 for _ in takewhile(masks.__contains__, names[best:]))
