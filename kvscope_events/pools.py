"""Events of a whole pool: its creation and contents, resets, blocks copied in it and out of it.

Declared separately; import them from `events.py` like the others.
"""

from typing import Annotated, ClassVar

import msgspec

from kvscope_events.event import Event, Fact
from kvscope_events.limits import (
    MAX_GROUPS,
    Blocks,
    Count,
    Finite,
    GroupIndex,
    Hash,
    Positive,
    Terms,
)
from kvscope_events.vocabulary import GroupKind, SwapDirection


class BlockCopied(Event, frozen=True):
    """Copy-on-write: the sequence writes to `target`, which holds what `source` held until now.

    Comes after the allocation of the target and before the release of the source, cause cow both.
    """

    sequence: int
    source: int
    target: int


class BlocksSwapped(Event, frozen=True):
    """Content of a sequence was copied between its blocks and blocks of the host's swap pool.

    With direction `in` it gives up all that it has there, even what need not be copied.
    """

    sequence: int
    direction: SwapDirection
    blocks: Count  # copied; 0: it ended while it was swapped out, or found all its blocks again
    used: Count  # blocks of the swap pool that hold something after this
    duration_ns: Count | None = None  # of the copy; None: not measured, or nothing was copied


class PrefixCacheReset(Fact, frozen=True):
    """The prefix cache was reset; BlocksEvicted names what it held, if anything."""

    blocks: int  # cached blocks that lost their content


class CacheGroup(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Layers whose blocks are handed out together; all groups share one pool.

    Chunked local attention is of kind `sliding_window`, linear attention of kind `state`.
    """

    kind: GroupKind
    block_size: Positive  # tokens
    window: Positive | None = None  # tokens that a layer sees; None: all
    layers: Positive | None = None  # None: not known
    bytes_per_block: Count | None = None  # of all its layers, on one rank; None: not known
    drafter: bool = False  # its layers belong to a draft model
    at_chunk_ends: bool = False  # of states: kept only at ends of chunks, which end with blocks


Groups = Annotated[list[CacheGroup], msgspec.Meta(max_length=MAX_GROUPS)]


class PoolCreated(Fact, frozen=True):
    """The pool was created or rebuilt: all blocks but the reserved ones are free."""

    num_blocks: Blocks
    block_size: Positive  # tokens that one name covers
    bytes_per_block: Count  # K and V of all layers; 0 where no tensors back the pool
    reserved: Blocks = 0
    memory_terms: Terms = {}  # bytes by SizingTerm; empty: the size was configured
    groups: Groups = []  # empty: one group of full attention
    swap_blocks: Count = 0  # of the host's swap pool; 0 without one
    # Capacity as the server itself reports it, reserved blocks included; None: not reported.
    size_tokens: Count | None = None
    longest_sequences: Finite | None = None  # of max_model_len tokens, at once
    alignment: Positive | None = None  # a hit is a multiple of this many tokens; None: unknown
    # Windows and states stay findable every this many tokens, besides the ends of prompts; 0: only
    # there; None: everywhere, or it is not known.
    retention: Count | None = None
    # A lookup leaves out the last block that it finds: a drafter needs it computed.
    drops_last: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_reserved(self.num_blocks, self.reserved)


class PoolSnapshot(Fact, frozen=True):
    """The pool's whole state, for subscribers that lost batches; it replaces the state before."""

    unchecked: ClassVar[frozenset[str]] = frozenset(("ref_counts", "hashes", "lru", "block_groups"))

    num_blocks: Blocks
    block_size: Positive
    bytes_per_block: Count
    reserved: Blocks
    ref_counts: list[Count]  # per block id
    hashes: list[Hash | None]  # per block id; None: holds nothing that can be found
    lru: list[int]  # cached blocks, the next to be evicted first
    memory_terms: Terms = {}
    groups: Groups = []
    swap_blocks: Count = 0
    swap_used: Count = 0  # blocks of the swap pool that hold something
    largest_step: Count | None = None  # tokens, of all steps of the session; None: not known
    size_tokens: Count | None = None
    longest_sequences: Finite | None = None
    alignment: Positive | None = None
    retention: Count | None = None
    # Group of each block that is referenced or cached, per block id; None: free, or not known.
    # Empty: the pool has one group, or none of it is known.
    block_groups: list[GroupIndex | None] = []
    drops_last: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_reserved(self.num_blocks, self.reserved)


def _check_reserved(num_blocks: int, reserved: int) -> None:
    if reserved > num_blocks:
        raise ValueError(f"a pool of {num_blocks} blocks with {reserved} reserved ones")
