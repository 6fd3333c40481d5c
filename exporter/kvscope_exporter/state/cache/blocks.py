"""The pool's state now: what each block holds, and since when; and which names can be found, how
many blocks hold each, and how many of those blocks are referenced.
"""

from array import array
from collections import Counter
from collections.abc import Container, Iterable, Sequence, Set

from kvscope_events.events import BlockHash, PoolCreated, PoolSnapshot

NEVER = -1
"""Stands for a time on the producer's clock: not idle, or not known."""


class Blocks:
    """Read by the questions about time and order; block ids beyond the pool are skipped."""

    def __init__(self) -> None:
        self.names: list[BlockHash | None] = []
        """By block id; None: nothing that can be found."""
        self.written_ns = array("q")
        """When the content became findable; NEVER: before we watched, or no content."""
        self.is_idle = bytearray()
        """1: findable and not referenced, so evictable."""
        self.idle_ns = array("q")
        """Time at which an idle block lost its last reference; NEVER: not idle, or not observed."""
        self.num_untimed = 0
        """Blocks that hold something since before we watched."""
        self.num_referenced = 0
        self.num_vacant = 0
        """Blocks that were in use and hold nothing now: a pool hands them out before it evicts.
        Blocks that were vacant before a snapshot are not known, and not counted."""

    def replace(self, event: PoolCreated | PoolSnapshot) -> None:
        """Restart from a whole state, whose times are unknown."""
        count = event.num_blocks
        self.num_vacant = 0
        self.written_ns = array("q", [NEVER]) * count
        self.idle_ns = array("q", [NEVER]) * count
        self.is_idle = bytearray(count)
        if isinstance(event, PoolSnapshot):
            self.names = [*event.hashes[:count], *[None] * (count - len(event.hashes))]
            self.num_untimed = count - self.names.count(None)
            self.num_referenced = sum(1 for references in event.ref_counts if references)
            for block in event.lru:
                if 0 <= block < count:
                    self.is_idle[block] = 1
        else:
            self.names = [None] * count
            self.num_untimed = 0
            self.num_referenced = 0

    def agrees(self, event: PoolSnapshot) -> bool:
        """Whether this equals our state, apart from the order of idle blocks."""
        return (
            self.names == event.hashes
            and self.num_referenced == sum(1 for references in event.ref_counts if references)
            and sum(self.is_idle) == len(event.lru) == len(self.idle_among(event.lru))
        )

    def allocate(self, blocks: Sequence[int]) -> None:
        """Free blocks got their first reference."""
        self.num_referenced += len(blocks)
        if self.num_vacant:
            self.num_vacant = max(0, self.num_vacant - len(blocks))

    def idle_among(self, blocks: Sequence[int]) -> list[int]:
        """The unreferenced ones among these blocks, in their order."""
        is_idle = self.is_idle
        return [block for block in self._in_pool(blocks) if is_idle[block]]

    def names_of(self, blocks: Sequence[int]) -> list[BlockHash]:
        """The findable names in these blocks, in their order."""
        held = list(map(self.names.__getitem__, self._in_pool(blocks)))
        return [name for name in held if name is not None]

    def share(self, idle: Sequence[int]) -> None:
        """These idle blocks got a reference again."""
        is_idle, idle_ns = self.is_idle, self.idle_ns
        for block in idle:
            is_idle[block] = 0
            idle_ns[block] = NEVER
        self.num_referenced += len(idle)

    def write(self, blocks: Sequence[int], names: Sequence[BlockHash], time_ns: int) -> bool:
        """Referenced blocks became findable.

        False, and nothing is written, if these are not blocks of the pool with one name each; a
        producer may omit ids.
        """
        held, written_ns = self.names, self.written_ns
        count = len(held)
        if len(blocks) == 1 == len(names) and 0 <= blocks[0] < count:  # as in decode
            if self.num_untimed:
                self._renew(blocks)
            held[blocks[0]] = names[0]
            written_ns[blocks[0]] = time_ns
            return True
        if len(names) > count:
            return False
        if blocks and not (len(blocks) == len(names) and min(blocks) >= 0 and max(blocks) < count):
            return False
        if self.num_untimed:
            self._renew(blocks)
        for block, name in zip(blocks, names, strict=False):
            held[block] = name
            written_ns[block] = time_ns
        return True

    def release(self, cached: Sequence[int], free: Sequence[int], time_ns: int) -> int:
        """These blocks lost their last reference; returns how many became idle."""
        is_idle, idle_ns = self.is_idle, self.idle_ns
        became = 0
        for block in self._in_pool(cached):
            if not is_idle[block]:
                is_idle[block] = 1
                idle_ns[block] = time_ns
                became += 1
        self.num_referenced = max(0, self.num_referenced - len(cached) - len(free))
        self.num_vacant += len(free)
        return became

    def lose(self, blocks: Sequence[int]) -> None:
        """These blocks no longer hold anything findable."""
        names, is_idle = self.names, self.is_idle
        written_ns, idle_ns = self.written_ns, self.idle_ns
        if self.num_untimed:
            self._renew(blocks)
        vacated = 0
        for block in self._in_pool(blocks):
            names[block] = None
            vacated += is_idle[block]
            is_idle[block] = 0
            written_ns[block] = idle_ns[block] = NEVER
        self.num_vacant += vacated

    def reset(self) -> None:
        """All idle blocks were emptied: nothing evictable is left."""
        self.num_vacant = 0

    def _renew(self, blocks: Sequence[int]) -> None:
        """The content of these blocks is about to change: its time is known from now on."""
        names, written_ns = self.names, self.written_ns
        for block in {*self._in_pool(blocks)}:
            if written_ns[block] == NEVER and names[block] is not None:
                self.num_untimed = max(0, self.num_untimed - 1)

    def _in_pool(self, blocks: Sequence[int]) -> Sequence[int]:
        """All of them, nearly always; so one look at their range is cheaper than one at each."""
        count = len(self.names)
        if not blocks or (min(blocks) >= 0 and max(blocks) < count):
            return blocks
        return [block for block in blocks if 0 <= block < count]


class ResidentNames:
    """A set of names, and a count of the copies of those that have more than one block.

    Nearly every name has only one block, so an event is one operation on sets, which is three times
    as fast as a count for each name.
    """

    def __init__(self) -> None:
        self._names: set[BlockHash] = set()
        self._copies: dict[BlockHash, int] = {}  # beyond the first, never 0

    @property
    def names(self) -> Set[BlockHash]:
        """A live view."""
        return self._names

    @property
    def doubled(self) -> Set[BlockHash]:
        """Names that more than one block holds; a live view."""
        return self._copies.keys()

    def copies(self, name: BlockHash) -> int:
        """Blocks that hold this name."""
        return self._copies.get(name, 0) + (name in self._names)

    def replace(self, names: Sequence[BlockHash]) -> set[BlockHash]:
        """Replace all names by these, one block each; returns the names that are gone."""
        before, self._names = self._names, set(names)
        self._copies = {name: count - 1 for name, count in Counter(names).items() if count > 1}
        return before - self._names

    def add(self, names: Sequence[BlockHash]) -> None:
        """Count one more block for each of these names."""
        held = self._names
        size = len(held)
        if held.isdisjoint(names):
            held.update(names)
            if len(held) == size + len(names):
                return
            held.difference_update(names)  # one of them occurs twice: name by name
        copies = self._copies
        for name in names:
            if name in held:
                copies[name] = copies.get(name, 0) + 1
            else:
                held.add(name)

    def remove(self, names: Sequence[BlockHash]) -> Sequence[BlockHash]:
        """Count one block less for each of these names; returns those without any left."""
        copies = self._copies
        if not copies:
            self._names.difference_update(names)
            return names
        gone = []
        for name in names:
            left = copies.get(name)
            if left is None:
                self._names.discard(name)
                gone.append(name)
            elif left > 1:
                copies[name] = left - 1
            else:
                del copies[name]
        return gone


class Doubles:
    """Names held by several blocks, and how many of these blocks are referenced.

    Two sequences that compute the same content at the same time leave two blocks with it.
    `resident` counts the copies; it must have changed before a call here.
    """

    def __init__(self, resident: ResidentNames) -> None:
        self._resident = resident
        self._referenced: dict[BlockHash, int] = {}  # of names with more than one block

    def replace(self, event: PoolSnapshot) -> None:
        """Take over a whole state."""
        doubled = self._resident.doubled
        self._referenced = dict.fromkeys(doubled, 0)
        if doubled:
            for name, references in zip(event.hashes, event.ref_counts, strict=False):
                if references and name is not None and name in doubled:
                    self._referenced[name] += 1

    def clear(self) -> None:
        """The pool is empty."""
        self._referenced.clear()

    def __len__(self) -> int:
        return len(self._referenced)

    def check(self) -> None:
        """Assert that only names with several blocks are kept."""
        assert self._referenced.keys() <= self._resident.doubled

    def is_referenced(self, name: BlockHash) -> bool:
        """Whether one of several blocks with this name is referenced."""
        return self._referenced.get(name, 0) > 0

    def write(self, names: Sequence[BlockHash], idle: Container[object]) -> None:
        """Referenced blocks got these names; idle: those of them that only idle blocks had."""
        doubled, referenced = self._resident.doubled, self._referenced
        if doubled.isdisjoint(names):
            return
        for name in names:
            if name in doubled:
                before = referenced.get(name)
                if before is None:
                    before = 0 if name in idle else 1
                referenced[name] = before + 1

    def share(self, names: Iterable[BlockHash]) -> None:
        """Idle blocks with these names are referenced again."""
        referenced = self._referenced
        if referenced:
            for name in names:
                if name in referenced:
                    referenced[name] += 1

    def release(self, names: Sequence[BlockHash]) -> Sequence[BlockHash]:
        """Blocks with these names are idle now; returns the names that no referenced block has."""
        referenced = self._referenced
        if not referenced or referenced.keys().isdisjoint(names):
            return names
        idle = []
        for name in names:
            left = referenced.get(name, 1) - 1
            if name in referenced:
                referenced[name] = max(0, left)
            if left <= 0:
                idle.append(name)
        return idle

    def lose(self, names: Iterable[BlockHash], *, were_referenced: bool) -> None:
        """Blocks lost these names."""
        referenced = self._referenced
        if not referenced:
            return
        doubled = self._resident.doubled
        for name in names:
            if name in referenced:
                if name not in doubled:
                    del referenced[name]
                elif were_referenced:
                    referenced[name] = max(0, referenced[name] - 1)
