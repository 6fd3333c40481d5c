"""Names that fell out of the window: an approximate memory of fixed size, two Bloom filters.

Names enter the newer filter. When it has taken as many as it was made for, it becomes the older
one, and the names of the former older one are gone. At least the last `capacity` names are thus
known, and at most twice as many. The chance that a name which never entered seems known is below
1 %; a name that entered and has not aged out is always known.

Each name sets six bits in one 64-bit word of the filter, two from each of three indices: one read
and one write instead of six. At 16 bits a name a full filter has a chance of 0.4 %, two full ones
of 0.8 %.
"""

from array import array
from collections.abc import Iterable
from itertools import product

from kvscope_events.events import BlockHash

_NAMES_PER_WORD = 4
_PAIRS = [1 << high | 1 << low for high, low in product(range(64), repeat=2)]
"""Pairs of bits in a word, indexed by 12 bits of a hash."""


class Forgotten:
    """A filter has two bytes for each name of `capacity`; it is allocated with the first name."""

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
