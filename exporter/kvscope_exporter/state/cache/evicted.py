"""Evicted names: the newest with their times, older ones approximately, and those that are being
computed again.
"""

from array import array
from collections import Counter, deque
from collections.abc import Iterable, Sequence, Set
from itertools import product

from kvscope_events.events import BlockHash
from kvscope_exporter.state.cache.run_stack import Segment

_NAMES_PER_WORD = 4
_PAIRS = [1 << high | 1 << low for high, low in product(range(64), repeat=2)]
"""Pairs of bits in a word, indexed by 12 bits of a hash."""


class ForgottenNames:
    """Names that fell out of the window: an approximate memory of fixed size, two Bloom filters.

    Names enter the newer filter. When it has taken as many as it was made for, it becomes the older
    one, and the names of the former older one are gone. At least the last `capacity` names are thus
    known, and at most twice as many. The chance that a name which never entered seems known is
    below 1 %; a name that entered and has not aged out is always known.

    Each name sets six bits in one 64-bit word of the filter, two from each of three indices: one
    read and one write instead of six. At 16 bits a name a full filter has a chance of 0.4 %, two
    full ones of 0.8 %. A filter is allocated with the first name.
    """

    def __init__(self, capacity: int) -> None:
        words = -(-capacity // _NAMES_PER_WORD)
        self._num_words = 1 << (words - 1).bit_length()  # an index is some bits of the hash
        self._capacity = capacity
        self._newer: array[int] | None = None
        self._older: array[int] | None = None
        self._taken = 0  # by the newer filter
        self._complete = True

    @property
    def is_complete(self) -> bool:
        """Whether no name has aged out so far."""
        return self._complete

    def __contains__(self, name: BlockHash) -> bool:
        if self._newer is None:
            return False
        place, bits = self._place(name)
        if self._newer[place] & bits == bits:
            return True
        return self._older is not None and self._older[place] & bits == bits

    def add(self, names: Iterable[BlockHash]) -> None:
        """Remember these names."""
        for name in names:
            if self._newer is None or self._taken == self._capacity:
                self._complete = self._complete and self._older is None
                self._older, self._newer = self._newer, array("Q", bytes(8 * self._num_words))
                self._taken = 0
            place, bits = self._place(name)
            self._newer[place] |= bits
            self._taken += 1

    def _place(self, name: BlockHash) -> tuple[int, int]:
        """The word of a name, and its bits in that word."""
        # 64 bits, mixed differently in every process: [0, 12), [12, 24), [24, 36) bits, [36, 64)
        # the word
        number = hash(name)
        bits = _PAIRS[number & 4095] | _PAIRS[number >> 12 & 4095] | _PAIRS[number >> 24 & 4095]
        return number >> 36 & self._num_words - 1, bits


class EvictedNames:
    """The last names evicted, in order; the oldest fall out into `forgotten`.

    A name that is resident again is not in the window.
    """

    def __init__(self, window: int, forgotten: ForgottenNames) -> None:
        self.forgotten = forgotten
        self._window = window
        self._times_ns: dict[BlockHash, int] = {}
        # Deleting a dict's first key again and again leaves a gap that each look-up of the first
        # key walks over, so the order is kept separately. A name that came back to the pool stays
        # in it; `_stale` counts such entries, which are removed when there are too many.
        self._order: deque[BlockHash] = deque()
        self._stale: dict[BlockHash, int] = {}

    def __len__(self) -> int:
        return len(self._times_ns)

    def __contains__(self, name: BlockHash) -> bool:
        return name in self._times_ns

    def time_ns(self, name: BlockHash) -> int | None:
        """When the name was evicted, on the producer's clock; None: it is not in the window.

        NEVER: it was evicted in batches that were lost.
        """
        return self._times_ns.get(name)

    def times_ns(self, names: Iterable[BlockHash]) -> list[int | None]:
        """The same for each of these names."""
        return list(map(self._times_ns.get, names))

    def missing(self, names: Sequence[BlockHash]) -> Sequence[BlockHash]:
        """Those of these names that are not in the window."""
        times_ns = self._times_ns
        if times_ns.keys().isdisjoint(names):
            return names
        return [name for name in names if name not in times_ns]

    def add(self, names: Iterable[BlockHash], time_ns: int) -> None:
        """Add names that have just lost their last block."""
        times_ns, append = self._times_ns, self._order.append
        for name in names:
            if name not in times_ns:  # otherwise it was evicted without having been resident
                times_ns[name] = time_ns
                append(name)
        if len(times_ns) > self._window:
            self._shrink()
        if len(self._order) > 2 * self._window:
            self._order = deque(times_ns)
            self._stale.clear()

    def discard(self, names: Iterable[BlockHash]) -> None:
        """Remove names that are resident again."""
        times_ns = self._times_ns
        if times_ns.keys().isdisjoint(names):
            return
        stale = self._stale
        for name in names:
            if times_ns.pop(name, None) is not None:
                stale[name] = stale.get(name, 0) + 1

    def check(self) -> None:
        """Assert that the order holds each name once, beside its stale entries; O(window)."""
        assert Counter(self._order) == Counter(self._stale) + Counter(iter(self._times_ns))
        assert len(self._times_ns) <= self._window
        assert len(self._order) <= 2 * self._window

    def _shrink(self) -> None:
        times_ns, order, stale = self._times_ns, self._order, self._stale
        out = []
        while len(times_ns) > self._window:
            name = order.popleft()
            if name in stale:
                if stale[name] == 1:
                    del stale[name]
                else:
                    stale[name] -= 1
            else:
                del times_ns[name]
                out.append(name)
        self.forgotten.add(out)


class RecomputedNames:
    """Names that larger pools would hold and that a sequence is computing again.

    Kept from the lookup that missed them until they are cached or their sequence ends.

    limit: maximum number of names, summed over sequences; beyond it all are forgotten, so that
    sequences that never end cannot fill the memory.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._distances: dict[BlockHash, int] = {}
        self._names_of: dict[int, Sequence[BlockHash]] = {}
        self._held = 0  # names in _names_of

    def __len__(self) -> int:
        return len(self._names_of)

    def check(self, resident: Set[BlockHash]) -> None:
        """Assert that no kept name is findable, and that the limit holds."""
        assert resident.isdisjoint(self._distances)
        assert self._held == sum(map(len, self._names_of.values())) <= self._limit

    def begin(self, sequence: int, names: Sequence[BlockHash], distances: Iterable[int]) -> None:
        """A sequence begins to compute exactly these, whose distances were just measured."""
        self.end(sequence)
        if self._held + len(names) > self._limit:
            self._distances.clear()
            self._names_of.clear()
            self._held = 0
            if len(names) > self._limit:
                return
        self._held += len(names)
        self._distances.update(zip(names, distances, strict=True))
        self._names_of[sequence] = names

    def leading(self, path: Sequence[BlockHash], start: int) -> list[Segment]:
        """The distances of the leading blocks of path[start:] that are kept, one by one."""
        get = self._distances.get
        found: list[Segment] = []
        if self._distances:
            for name in path[start:]:
                distance = get(name)
                if distance is None:
                    break
                found.append((distance, 1))
        return found

    def cache(self, names: Iterable[BlockHash]) -> None:
        """These names can be found again."""
        if self._distances:
            for name in names:
                self._distances.pop(name, None)

    def end(self, sequence: int) -> None:
        """The sequence gave its blocks back."""
        if self._names_of:
            names = self._names_of.pop(sequence, ())
            self._held -= len(names)
            self.cache(names)
