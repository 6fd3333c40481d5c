"""Capacity of a pool, in tokens and in sequences; None if its blocks do not determine it.

In a pool of several groups each sequence takes blocks of every group, but of windows and states
only some: the capacity is then known only from the server, which includes reserved blocks.
"""

from collections.abc import Sequence

from kvscope_events.events import CacheGroup
from kvscope_exporter.state.ledger import Ledger


def is_plain(groups: Sequence[CacheGroup]) -> bool:
    """Whether a pool has a single group of layers that see all tokens: no windows, no states."""
    return not groups or (len(groups) == 1 and groups[0].kind == "full_attention")


def block_tokens(pool: Ledger) -> int | None:
    """Tokens that a block holds; None: the groups differ."""
    sizes = {group.block_size for group in pool.groups} or {pool.block_size}
    return sizes.pop() if len(sizes) == 1 else None


def usable_tokens(pool: Ledger) -> int | None:
    """Tokens that the usable blocks hold."""
    if is_plain(pool.groups):
        return pool.num_usable * pool.block_size
    if pool.size_tokens is None or not pool.num_blocks:
        return None
    return pool.size_tokens * pool.num_usable // pool.num_blocks


def longest_sequences(pool: Ledger, max_model_len: int | None) -> float | None:
    """Sequences of the longest length that fit into the usable blocks at once."""
    if is_plain(pool.groups):
        return pool.num_usable / -(-max_model_len // pool.block_size) if max_model_len else None
    if pool.longest_sequences is None or not pool.num_blocks:
        return None
    return pool.longest_sequences * pool.num_usable / pool.num_blocks
