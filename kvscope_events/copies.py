"""Events of blocks whose content is copied: on write, and to the host's swap pool and back."""

from kvscope_events.event import Event
from kvscope_events.limits import Count
from kvscope_events.vocabulary import SwapDirection


class BlockCopied(Event, frozen=True):
    """Copy-on-write: the sequence writes to `target`, which holds what `source` held until now.

    Comes after the allocation of the target and before the release of the source, cause cow both.
    """

    sequence: int
    source: int
    target: int


class BlocksSwapped(Event, frozen=True):
    """Content of a sequence was copied between its blocks and blocks of the host's swap pool.

    With direction in it gives up all that it has there, also what need not be copied.
    """

    sequence: int
    direction: SwapDirection
    blocks: Count  # copied; 0: it ended while it was swapped out, or found all its blocks again
    used: Count  # blocks of the swap pool that hold something after this
    duration_ns: Count | None = None  # of the copy; None: not measured, or nothing was copied
