"""The two encodings of KV events as msgspec types; unneeded fields are skipped unread.

Maps: vLLM from 0.24 on, SGLang from 0.5.20 on, Dynamo. Arrays: the versions before.
Fields that a server does not know are missing, at the end of an array or anywhere in a map.
"""

from typing import Annotated, final

import msgspec

from kvscope_events.limits import MAX_EVENTS, Count
from kvscope_exporter.sources.kv_events.naming import MAX_GROUP, MAX_HASH_BYTES

MAX_HASHES = 1 << 20
"""Maximum number of names in one message; the largest real ones name a whole flushed pool."""

_NOTHING = msgspec.Raw()
BlockKey = int | Annotated[bytes, msgspec.Meta(min_length=1, max_length=MAX_HASH_BYTES)]
Keys = Annotated[list[BlockKey], msgspec.Meta(max_length=MAX_HASHES)]
Group = Annotated[int, msgspec.Meta(ge=0, le=MAX_GROUP)]
Medium = Annotated[str, msgspec.Meta(max_length=64)]


@final
class StoredMap(msgspec.Struct, gc=False, tag_field="type", tag="BlockStored"):
    """Blocks became findable."""

    block_hashes: Keys
    parent_block_hash: BlockKey | None = None
    block_size: Count = 0
    medium: Medium | None = None
    group_idx: Group | None = None


@final
class RemovedMap(msgspec.Struct, gc=False, tag_field="type", tag="BlockRemoved"):
    """Blocks can no longer be found."""

    block_hashes: Keys
    medium: Medium | None = None
    group_idx: Group | None = None


@final
class ClearedMap(msgspec.Struct, gc=False, tag_field="type", tag="AllBlocksCleared"):
    """The device's cache was cleared; other tiers keep their content."""


@final
class StoredArray(msgspec.Struct, gc=False, array_like=True, tag="BlockStored"):
    """Fields in the order of vLLM 0.23; all older orders are prefixes of it."""

    block_hashes: Keys
    parent_block_hash: BlockKey | None
    token_ids: msgspec.Raw
    block_size: Count
    lora_id: msgspec.Raw = _NOTHING
    medium: Medium | None = None
    lora_name: msgspec.Raw = _NOTHING  # in SGLang 0.5.18 and 0.5.19 an object of metadata
    extra_keys: msgspec.Raw = _NOTHING
    group_idx: Group | None = None


@final
class RemovedArray(msgspec.Struct, gc=False, array_like=True, tag="BlockRemoved"):
    """Blocks can no longer be found."""

    block_hashes: Keys
    medium: Medium | None = None
    group_idx: Group | None = None


@final
class ClearedArray(msgspec.Struct, gc=False, array_like=True, tag="AllBlocksCleared"):
    """The device's cache was cleared."""


MapEvent = StoredMap | RemovedMap | ClearedMap
ArrayEvent = StoredArray | RemovedArray | ClearedArray
TAGS = frozenset(("BlockStored", "BlockRemoved", "AllBlocksCleared"))

_AT_MOST = msgspec.Meta(max_length=MAX_EVENTS)


class MapEnvelope(msgspec.Struct, array_like=True):
    """The envelope that all servers put around a message's events; here all are known, and maps."""

    time: float  # wall clock, in seconds
    events: Annotated[list[MapEvent], _AT_MOST]
    rank: int | None = None  # data-parallel; older and foreign publishers leave it out


class ArrayEnvelope(msgspec.Struct, array_like=True):
    """The same, with arrays."""

    time: float
    events: Annotated[list[ArrayEvent], _AT_MOST]
    rank: int | None = None


class RawEnvelope(msgspec.Struct, array_like=True):
    """The same, with events that are still to be read one by one."""

    time: float
    events: Annotated[list[msgspec.Raw], _AT_MOST]
    rank: int | None = None


class MapTag(msgspec.Struct):
    """The type of any event that is a map."""

    type: str


class ArrayTag(msgspec.Struct, array_like=True):
    """The type of any event that is an array."""

    type: str
