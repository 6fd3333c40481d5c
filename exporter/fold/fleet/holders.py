"""The replicas that hold each name: an integer for each name, with one bit for each replica.

The longest prefix that one replica holds is where the AND of these integers becomes zero, however
many replicas there are. The integers are shared: as many exist as there are sets of replicas that
hold the same content.
"""

from collections.abc import Hashable, Sequence

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
        again, get = self._again[slot], self._masks.get
        self._resident[slot] += len(names)
        before, after = 0, shared.setdefault(bit, bit)
        for name in names:
            mask = get(name, 0)
            if mask != before:  # neighbours are mostly held by the same replicas
                if mask & bit:
                    again[name] = again.get(name, 0) + 1
                    continue
                before, after = mask, shared.setdefault(mask | bit, mask | bit)
            masks[name] = after
        if len(shared) > _SPARE + len(masks):
            shared.clear()

    def remove(self, slot: int, names: Sequence[Hashable]) -> None:
        """As many blocks of a replica lost these names; those that it does not have are skipped."""
        masks, shared, bit = self._masks, self._shared, 1 << slot
        again, take = self._again[slot], self._masks.pop
        strangers = 0
        for name in names:
            mask = take(name, 0)
            if mask == bit and not again:  # by far the most
                continue
            if not mask & bit:
                strangers += 1
            elif name in again:
                again[name] -= 1
                if not again[name]:
                    del again[name]
            else:
                mask = shared.setdefault(mask ^ bit, mask ^ bit)
            if mask:
                masks[name] = mask
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
        get = masks.get
        common, last, best = -1, -1, 0
        for name in names:
            mask = get(name)
            if mask is not last:
                if mask is None:
                    return best, best
                common &= mask
                if not common:
                    break
                last = mask
            best += 1
        anywhere = best
        for name in names[best:]:
            if name not in masks:
                break
            anywhere += 1
        return best, anywhere
