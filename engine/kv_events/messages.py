"""The messages of vLLM 0.32's KV events, encoded from the pool's reports.

Events are maps with the key `type`; fields with their default value are left out, like vLLM since
0.24. Fields that this engine never fills are not declared.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from kvscope_events.events import BlockHash

WireHash = int | bytes
MEDIUM = "GPU"
"""Medium of the pool on the accelerator; vLLM uses it on a CPU as well."""
_GROUP = 0  # one group of layers holds all blocks
_KIND = "full_attention"  # layers with a window keep their whole past here as well


class BlockStored(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    """Blocks became findable, each the child of the one before it."""

    block_hashes: list[WireHash]
    parent_block_hash: WireHash | None
    token_ids: list[int]  # of all these blocks, one after the other
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[str, ...] | None] | None = None  # per block, further input of its hash
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None


class BlockRemoved(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    """Blocks can no longer be found."""

    block_hashes: list[WireHash]
    medium: str | None
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    """Nothing can be found."""


KvEvent = BlockStored | BlockRemoved | AllBlocksCleared


class KvEventBatch(msgspec.Struct, array_like=True, gc=False):
    """One message: the events of one step."""

    ts: float  # wall clock at the end of the step, in seconds
    events: list[KvEvent]
    data_parallel_rank: int


class Stored(NamedTuple):
    """The arguments of `ContentListener.stored`."""

    hashes: list[BlockHash]
    parent: BlockHash | None
    tokens: list[int]
    block_size: int
    salt: str


class Removed(NamedTuple):
    hashes: list[BlockHash]


class Cleared(NamedTuple):
    pass


Change = Stored | Removed | Cleared


class MessageEncoder:
    """Encodes the changes of one step as the payload of one message."""

    def __init__(self, *, int_hashes: bool) -> None:
        self._hash: Callable[[BlockHash], WireHash] = _low_64_bits if int_hashes else bytes
        self._encode = msgspec.msgpack.Encoder().encode

    def encode(self, wall_seconds: float, changes: list[Change]) -> bytes:
        events = [self._event(change) for change in changes]
        return self._encode(KvEventBatch(wall_seconds, events, 0))

    def _event(self, change: Change) -> KvEvent:
        hash_of = self._hash
        if isinstance(change, Cleared):
            return AllBlocksCleared()
        hashes = [hash_of(name) for name in change.hashes]
        if isinstance(change, Removed):
            return BlockRemoved(hashes, MEDIUM, _GROUP)
        extra_keys: list[tuple[str, ...] | None] = [None] * len(hashes)
        if change.salt:
            extra_keys[0] = (change.salt,)
        return BlockStored(
            block_hashes=hashes,
            parent_block_hash=None if change.parent is None else hash_of(change.parent),
            token_ids=change.tokens,
            block_size=change.block_size,
            lora_id=None,
            medium=MEDIUM,
            lora_name=None,
            extra_keys=extra_keys,
            group_idx=_GROUP,
            kv_cache_spec_kind=_KIND,
        )


def _low_64_bits(name: BlockHash) -> int:
    return int.from_bytes(name[-8:], "big")
