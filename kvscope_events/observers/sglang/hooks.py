"""SGLang's methods that are hooked, by release: found and compared before any is replaced.

The end of a request and the publishing of a running one were renamed twice: `cache_finished_req`
and `cache_unfinished_req` up to 0.5.20, `claim_kv_row` from 0.5.21, `checkpoint` from 0.5.22.
"""

from typing import Any

from kvscope_events.observers.sglang.patching import (
    After,
    Before,
    Found,
    UnknownMethodError,
    found,
)
from kvscope_events.observers.sglang.steps import Steps

_WHILE_PAUSED = "_record_scheduler_state_for_paused_engine"
"""Called in each pass of a paused loop, which asks for no batch; not in all releases."""


def boundaries(
    scheduler: Any, pass_begins: Before, batch_chosen: After | None = None
) -> list[Found]:
    """The methods that are called first in a pass of the scheduler's loop, between two steps."""
    methods = [found(scheduler, "get_next_batch_to_run", (), pass_begins, batch_chosen)]
    if hasattr(scheduler, _WHILE_PAUSED):
        methods.append(found(scheduler, _WHILE_PAUSED, (), pass_begins))
    return methods


def methods(
    scheduler: Any,
    batch: type,
    steps: Steps,
    pass_begins: Before,
    step_completed: After,
    idle: After,
) -> list[Found]:
    """All of them; raises UnknownMethodError.

    batch: SGLang's class of batches. step_completed: called when the result of a batch has been
    processed; pass_begins and idle: over and over while nothing runs.
    """
    pages, tree = steps.pages, scheduler.tree_cache
    rows = scheduler.req_to_token_pool
    finish = _present(tree, ("cache_finished_req", "claim_kv_row"))
    publish = _present(tree, ("cache_unfinished_req", "checkpoint"))
    node = ("node|node_id",)
    hooks = [
        *boundaries(scheduler, pass_begins, steps.admission.chosen),
        found(scheduler, "get_new_batch_prefill", (), None, steps.admission.prefill_planned),
        found(scheduler, "process_batch_result", ("batch", "result"), None, step_completed),
        found(scheduler, "on_idle", (), None, idle),
        found(scheduler, "_add_request_to_queue", ("req", "is_retracted"), None, steps.queued),
        found(batch, "prepare_for_extend", ("self",), steps.extend_begins, steps.extended),
        found(batch, "prepare_for_decode", ("self",), None, steps.decoded),
        found(batch, "retract_decode", ("self",), steps.retract_begins, steps.retracted),
        found(rows, "free", ("req",), steps.row_freed),
        found(tree, finish, ("req",), pages.release_begins),
        found(tree, publish, ("req",), pages.publish_begins, pages.published),
        found(
            *(tree, "insert", ("params",)),
            pages.insert_begins if pages.has_host_tier else None,
            pages.inserted,
        ),
        found(tree, "evict", ("params",), pages.evict_begins, pages.evicted),
        found(tree, "inc_lock_ref", node, pages.lock_begins, pages.locked),
        found(tree, "dec_lock_ref", node, pages.lock_begins, pages.locked),
        found(tree, "reset", (), None, pages.tree_reset),
        found(scheduler.token_to_kv_pool_allocator, "clear", (), None, pages.pool_cleared),
    ]
    if hasattr(tree, "evict_for_alloc"):
        hooks.append(found(tree, "evict_for_alloc", ("params",), pages.evict_begins, pages.evicted))
    if pages.has_host_tier:
        core = tree.tree_core
        hooks += [
            found(tree.cache_controller, "load", (), None, pages.loaded),
            found(core, "commit_load_back", (), pages.commit_begins, pages.committed),
        ]
    return hooks


def _present(tree: Any, names: tuple[str, ...]) -> str:
    for name in names:
        if hasattr(tree, name):
            return name
    raise UnknownMethodError(f"looked for {type(tree).__name__}.{' or '.join(names)}, found none")
