"""Every method of vLLM that is observed, as data: its location, the signature we rely on, the
handler that reports it.

`parameters` are the names of the leading parameters after `self`, the same in all versions that
have the method, from `since` to the newest that was tested. A version with different parameters is
not observed.
"""

from typing import Any

from kvscope_events.observers.vllm import content, manager, pool, scheduler
from kvscope_events.observers.vllm.wrappers import Hook, Part, entered, watched

_of_pool, _of_queue = Part("pool"), Part("queue")
_of_manager, _of_scheduler = Part("manager"), Part("scheduler")


def _of_group(observer: Any, self: Any) -> bool:
    # Not guarded by the wrapper, so it must not raise in a vLLM that keeps its pool elsewhere.
    return getattr(self, "block_pool", None) is observer.pool


def _pool(method: str, *parameters: str, since: str = "0.11", **more: Any) -> Hook:
    module, required = "vllm.v1.core.block_pool", since == "0.11"
    return Hook(module, "BlockPool", method, parameters, since, required, _of_pool, **more)


def _manager(method: str, *parameters: str, since: str = "0.11", **more: Any) -> Hook:
    module, required = "vllm.v1.core.kv_cache_manager", since == "0.11"
    return Hook(module, "KVCacheManager", method, parameters, since, required, _of_manager, **more)


def _scheduler(method: str, *parameters: str, since: str = "0.11", **more: Any) -> Hook:
    module, required = "vllm.v1.core.sched.scheduler", since == "0.11"
    more = {"wrap": entered, **more}
    return Hook(module, "Scheduler", method, parameters, since, required, _of_scheduler, **more)


HOOKS: tuple[Hook, ...] = (
    Hook(
        "vllm.v1.core.kv_cache_utils",
        "FreeKVCacheBlockQueue",
        "popleft_n",
        ("n",),
        "0.11",
        True,
        _of_queue,
        pool.handed_out,
    ),
    _pool("touch", "blocks", after=pool.touched),
    _pool("free_blocks", "ordered_blocks", after=pool.freed, wrap=pool.freeing),
    _pool(
        "cache_full_blocks",
        "request",
        "blocks",
        "num_cached_blocks",
        "num_full_blocks",
        "block_size",
        "kv_cache_group_id",
        before=content.before_cached,
        after=content.cached,
    ),
    _pool("reset_prefix_cache", before=pool.before_reset, after=pool.was_reset),
    _pool(
        "evict_blocks",
        "block_ids",
        since="0.13",
        before=pool.before_ordered,
        after=pool.ordered,
    ),
    _pool(
        "cache_partial_block",
        "request",
        "block",
        "num_tokens",
        "kv_cache_group_id",
        since="0.24",
        before=content.before_one(1, "block"),
        after=content.cached_partially,
    ),
    _pool(
        "move_block_hashes",
        "src_block",
        "dst_block",
        since="0.26",
        before=content.before_one(0, "src_block"),
        after=content.moved,
    ),
    _pool("unpin_blocks", "blocks", since="0.30", after=pool.unpinned, wrap=pool.freeing),
    Hook(
        "vllm.v1.core.single_type_kv_cache_manager",
        "SingleTypeKVCacheManager",
        "_apply_cow",
        ("request_id", "block_idx", "source_block", "cow_block"),
        "0.26",
        False,
        _of_group,
        pool.copied,
    ),
    _manager(
        "allocate_slots",
        "request",
        "num_new_tokens",
        "num_new_computed_tokens",
        before=manager.before_slots,
        after=manager.slots,
        wrap=manager.allocating,
    ),
    _manager("can_fit_full_sequence", "request", since="0.19", after=manager.fitted),
    _manager(
        "free",
        "request",
        before=manager.before_free,
        after=manager.gave_back,
        clears="releasing",
    ),
    _manager(
        "pop_blocks_for_free",
        "request",
        since="0.24",
        before=manager.before_free,
        after=manager.gives_back_later,
        clears="releasing",
    ),
    _manager(
        "remove_skipped_blocks",
        "request_id",
        since="0.26",
        before=manager.before_skipped,
        after=None,
        clears="releasing",
    ),
    _scheduler(
        "add_request",
        "request",
        before=scheduler.before_add,
        after=scheduler.added,
        opens=True,
    ),
    _scheduler("schedule", before=scheduler.before_schedule, after=scheduler.scheduled, opens=True),
    _scheduler("update_from_output", "scheduler_output", after=scheduler.updated),
    _scheduler("finish_requests", after=scheduler.outside),
    _scheduler("_free_request", "request", after=scheduler.ended),
    _scheduler(
        "reset_prefix_cache",
        before=scheduler.before_reset,
        after=scheduler.outside,
        clears="resetting",
        opens=True,
    ),
    _scheduler(
        "_free_cow_retained_blocks",
        "blocks",
        since="0.26",
        before=scheduler.before_copies_freed,
        after=None,
        wrap=watched,
    ),
    _scheduler("shutdown", since="0.12", after=scheduler.shut_down, wrap=watched),
)
