"""Schedulers that are not observed: each reason is one line that says what was looked for."""

from typing import Any

DESCRIBED = frozenset(
    {
        "FullAttentionManager",
        "SinkFullAttentionManager",
        "SlidingWindowManager",
        "ChunkedLocalAttentionManager",
        "MambaManager",
    }
)
"""vLLM's classes that keep the blocks of a group: those whose groups the contract has words for.

Others keep a ring for each request, the keys of an encoder, pages that a request may lose while it
runs, or drop blocks from the middle of a sequence.
"""


def refusal(scheduler: Any, base: type, methods: frozenset[tuple[str, str]]) -> str | None:
    """The reason why this scheduler cannot be observed; None: it can.

    `base` is vLLM's scheduler, `methods` are the classes and methods that are patched.
    """
    own = type(scheduler)
    if not _is_vllms(own) and own.update_from_output is not base.update_from_output:  # type: ignore[attr-defined]
        return f"{own.__module__}.{own.__qualname__} has an update_from_output of its own"
    manager = scheduler.kv_cache_manager
    pool = manager.block_pool
    if not hasattr(pool.free_block_queue, "fake_free_list_head"):
        return f"looked for a linked queue of free blocks, found {type(pool.free_block_queue)!r}"
    coordinator = manager.coordinator
    managers = coordinator.single_type_managers
    for index, one in enumerate(managers):
        kind = type(one)
        if not _is_vllms(kind) or kind.__name__ not in DESCRIBED:
            found = f"{kind.__module__}.{kind.__qualname__}"
            return f"looked for a known kind of layers, found {found} in group {index}"
    if any(getattr(one, "block_pool", pool) is not pool for one in managers):
        return "the layers of this model keep their blocks in several pools"
    if getattr(coordinator, "enable_partial_hash_hits", False):
        # Up to 0.25 a partial hit needs no copy, so neither method exists.
        moves = ("BlockPool", "move_block_hashes") in methods
        copies = ("SingleTypeKVCacheManager", "_apply_cow") in methods
        if moves != copies:
            return "partial prefix hits copy blocks in an unknown way"
    return None


def _is_vllms(own: type) -> bool:
    return own.__module__.split(".")[0] == "vllm"
