"""Events of servers that report content by name and tier, not blocks: KV event streams.

Such a stream knows neither requests nor references. Several blocks of one tier may have one name;
each is stored and removed on its own.
"""

from typing import Annotated

import msgspec

from kvscope_events.event import Event
from kvscope_events.limits import Count, Hash
from kvscope_events.vocabulary import Tier

BlockNames = Annotated[list[Hash], msgspec.Meta(max_length=1 << 20)]


class NamesStored(Event, frozen=True):
    """Blocks with this content became findable in a tier: consecutive descendants of `parent`."""

    tier: Tier
    names: BlockNames
    parent: Hash | None  # None: the first of them begins a sequence, or the server does not say
    block_size: Count = 0  # tokens that one name covers; 0: the server does not say


class NamesRemoved(Event, frozen=True):
    """As many blocks with this content can no longer be found in a tier."""

    tier: Tier
    names: BlockNames


class NamesCleared(Event, frozen=True):
    """A tier forgot all that it held."""

    tier: Tier
