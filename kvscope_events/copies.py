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
    """Content of a sequence was copied between its blocks and blocks of the host's swap pool."""

    sequence: int
    direction: SwapDirection
    blocks: Count  # copied
    used: Count  # blocks of the swap pool that hold something after this
    duration_ns: Count | None = None  # of the copy; None: not measured
