"""Names of blocks, and events that report content by name and tier.

In a pool of several groups, blocks of two groups with the same tokens hold different bytes. Each
has a name of its own, content in front and group behind: a lookup in one group also determines the
names in all others.

A KV event stream knows neither requests nor references. Several blocks of one tier may have one
name; each is stored and removed on its own. An engine that knows its own pool's blocks reports here
only the tiers below it.
"""

from typing import Annotated

import msgspec

from kvscope_events.event import Event, Fact
from kvscope_events.limits import Count, Hash, Positive
from kvscope_events.vocabulary import Tier, TransferDirection

BlockNames = Annotated[list[Hash], msgspec.Meta(max_length=1 << 20)]

NAME_BYTES = 16
GROUP_BYTES = 4
CONTENT_BYTES = NAME_BYTES - GROUP_BYTES


def suffix_of(group: int) -> bytes:
    """The last bytes of a group's names."""
    return group.to_bytes(GROUP_BYTES, "big")


def in_group(name: bytes, group: int) -> bytes:
    """The name that the same tokens have in this group."""
    return name[:CONTENT_BYTES] + suffix_of(group)


def group_of(name: bytes) -> int:
    """The group that a name belongs to."""
    return int.from_bytes(name[CONTENT_BYTES:NAME_BYTES], "big")


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


class TierCreated(Fact, frozen=True):
    """A tier below the pool, empty; in a stream, also sent with each snapshot of the pool."""

    tier: Tier
    num_blocks: Count  # that it can hold
    block_size: Positive  # tokens of each
    bytes_per_block: Count  # on the host, over all ranks
    empty: bool = True  # False: sent again; its content is not listed


class TierTransferred(Event, frozen=True):
    """KV was copied between the pool and a tier, as the engine's connector measured it."""

    tier: Tier
    direction: TransferDirection
    bytes: Count
    duration_ns: Count  # of the copies, which may overlap with each other and with steps
