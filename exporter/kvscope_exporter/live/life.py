"""The last events about blocks and names: the life of each."""

from collections import deque
from collections.abc import Collection

from kvscope_events.events import (
    BlockCopied,
    BlockHash,
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    ContentDropped,
    EngineEvent,
    NamesRemoved,
    NamesStored,
    PrefixLookup,
)

KEPT_EVENTS = 8192
KEPT_SUBJECTS = 1 << 20
"""Blocks and names in them, which bounds their memory."""


class Lives:
    """The oldest events go first."""

    def __init__(self) -> None:
        self.events: deque[tuple[int, EngineEvent]] = deque()
        """With their times on the producer's clock."""
        self._num_subjects = 0

    def note(self, event: EngineEvent, time_ns: int) -> None:
        self.events.append((time_ns, event))
        self._num_subjects += len(_subjects(event))
        while len(self.events) > KEPT_EVENTS or self._num_subjects > KEPT_SUBJECTS:
            self._num_subjects -= len(_subjects(self.events.popleft()[1]))

    def of(self, subject: int | BlockHash) -> list[tuple[int, EngineEvent]]:
        """Events about this block or name, the newest first."""
        return [each for each in reversed(self.events) if subject in _subjects(each[1])]


def is_hit(event: EngineEvent) -> bool:
    """Whether a lookup found its blocks or names."""
    return isinstance(event, PrefixLookup) or (
        isinstance(event, BlocksShared) and event.cause == "prefix_hit"
    )


def _subjects(event: EngineEvent) -> Collection[int] | Collection[BlockHash]:
    """The blocks that an event about blocks names, or the content that one about names does."""
    match event:
        case BlocksReleased():
            return [*event.cached, *event.free, *event.shared]
        case BlockCopied():
            return (event.source, event.target)
        case BlocksAllocated() | BlocksShared() | BlocksCached() | BlocksEvicted():
            return event.blocks
        case ContentDropped():
            return event.blocks
        case NamesStored() | NamesRemoved():
            return event.names
        case PrefixLookup():
            return event.hashes[: event.hit_blocks]
    return ()
