"""The make-up of a pool and the origin of its size: groups, bytes, reserved blocks."""

from math import lcm
from typing import Any

from kvscope_events.events import CacheGroup
from kvscope_events.vocabulary import GroupKind

_WINDOWS = ("sliding_window", "attention_chunk_size")


def pool_bytes(kv_cache_config: Any) -> int:
    """Memory of a pool's tensors on one rank, without host memory; 0 if vLLM does not say.

    Up to 0.23 each tensor has its own memory. Later, tensors with a stride lie in one allocation,
    and since 0.29 (tensors of several layers) each of them states the size of all.
    """
    tensors = [
        tensor
        for tensor in getattr(kv_cache_config, "kv_cache_tensors", None) or ()
        if not getattr(tensor, "host_resident", False)
    ]
    if any(hasattr(tensor, "layer_stride") for tensor in tensors):
        return max(int(tensor.size) for tensor in tensors)
    packed = [int(tensor.size) for tensor in tensors if getattr(tensor, "block_stride", 0)]
    alone = [int(tensor.size) for tensor in tensors if not getattr(tensor, "block_stride", 0)]
    return sum(alone) + max(packed, default=0)


def bytes_per_block(kv_cache_config: Any, num_blocks: int) -> int:
    """Bytes of one block on one rank; 0 if vLLM does not say."""
    return pool_bytes(kv_cache_config) // num_blocks if num_blocks else 0


def capacity(cache_config: Any) -> tuple[int | None, float | None]:
    """Tokens, and sequences of the longest length, as vLLM logs them; None: it does not say."""
    tokens = getattr(cache_config, "kv_cache_size_tokens", None)
    sequences = getattr(cache_config, "kv_cache_max_concurrency", None)
    return (
        None if tokens is None else int(tokens),
        None if sequences is None else float(sequences),
    )


def sized_by(cache_config: Any) -> str:
    """The option that set the pool's size; on a CPU an environment variable sets the bytes."""
    for option in ("num_gpu_blocks_override", "kv_cache_memory_bytes"):
        if getattr(cache_config, option, None):
            return option
    return "gpu_memory_utilization"


def groups_of(kv_cache_config: Any, block_size: int) -> list[CacheGroup]:
    """The groups in vLLM's order; empty if it does not say."""
    groups = getattr(kv_cache_config, "kv_cache_groups", None) or ()
    return [_group(group, block_size) for group in groups]


def alignment(coordinator: Any, groups: list[CacheGroup], block_size: int) -> int:
    """Tokens of which a hit is a multiple: of whole blocks of all groups, or of what names cover.

    block_size: tokens that one name covers.
    """
    if getattr(coordinator, "enable_partial_hash_hits", False):
        return block_size
    told = getattr(coordinator, "scheduler_block_size", None)  # since 0.26
    return int(told or lcm(block_size, *(group.block_size for group in groups)))


def retention(coordinator: Any) -> int | None:
    """Tokens after which windows and states stay findable; None: all of them do."""
    interval = getattr(coordinator, "retention_interval", None)
    return None if interval is None else int(interval)


def lookup_group(groups: list[CacheGroup], block_size: int) -> int:
    """The group in whose names look-ups are reported: one that keeps every block of a prefix."""
    for kind in ("full_attention", "sliding_window", "state"):
        for index, group in enumerate(groups):
            if group.kind == kind and group.block_size == block_size:
                return index
    return 0


def reserved_blocks(pool: Any) -> int:
    """Blocks from id 0 on that are never handed out: the null block, and some models' sinks."""
    queued = {block.block_id for block in pool.free_block_queue.get_all_free_blocks()}
    reserved = 0
    for block in pool.blocks:
        if block.block_id in queued or (block.ref_cnt and not block.is_null):
            break
        reserved += 1
    return reserved


def _group(group: Any, block_size: int) -> CacheGroup:
    spec = group.kv_cache_spec
    layers = len(group.layer_names)
    per_layer = getattr(spec, "page_size_bytes", None)
    inner = getattr(spec, "kv_cache_specs", None)  # layers of one type with different sizes
    if inner:
        spec = next(iter(inner.values()))
    kind: GroupKind = "full_attention"
    window = None
    name = type(spec).__name__
    if "Mamba" in name:
        kind = "state"
    elif name.startswith(("SlidingWindow", "ChunkedLocal")):
        kind = "sliding_window"
        window = next((getattr(spec, field) for field in _WINDOWS if hasattr(spec, field)), None)
    return CacheGroup(
        kind,
        int(getattr(spec, "block_size", 0)) or block_size,
        window or None,
        layers or None,
        None if per_layer is None else int(per_layer) * (1 if inner else layers),
        bool(getattr(group, "is_eagle_group", False)),
        getattr(spec, "mamba_cache_mode", None) == "align",
    )
