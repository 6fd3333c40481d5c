"""SGLang's own record of the names that its radix tree stores and removes, switched on for us.

A tree that goes on to record them for an observer that has ended would keep them without a limit.
"""

from typing import Any

from kvscope_events.observers.log import warn

_IN_PYTHON = "KVCacheEventRecorder"
_DISCARDS = "_kvscope_discards"


def can_be_stopped(tree: Any) -> bool:
    """Whether the tree can be made to stop recording, and to go on with all that it has then."""
    has_host_tier = getattr(tree, "cache_controller", None) is not None
    return _recorder(tree) is not None and not has_host_tier


def stop(scheduler: Any) -> None:
    """Have nothing pile up; may be repeated. A tree in Rust cannot be stopped: what it records is
    dropped after each step."""
    recorder = _recorder(scheduler.tree_cache)
    if recorder is None:
        _discard_after_steps(scheduler)
        return
    recorder.take()
    recorder.enabled = False


def resume(tree: Any) -> None:
    """Record all that is in a tree that was stopped, and from now on what changes; O(pages)."""
    recorder = _recorder(tree)
    assert recorder is not None
    recorder.enabled = True
    # Parents first: a node's names go on from those of its parent.
    waiting = [*_core(tree).root_node.children.values()]
    while waiting:
        node = waiting.pop()
        recorder.record_store(node)
        waiting += node.children.values()


def _core(tree: Any) -> Any:
    return getattr(tree, "tree_core", tree)


def _recorder(tree: Any) -> Any:
    """The recorder of a tree in Python; None: it has another."""
    recorder = getattr(_core(tree), "kv_events", None)
    return recorder if type(recorder).__name__ == _IN_PYTHON else None


def _discard_after_steps(scheduler: Any) -> None:
    process, tree = scheduler.process_batch_result, scheduler.tree_cache
    if hasattr(process, _DISCARDS):
        return

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = process(*args, **kwargs)
        try:
            tree.take_events()
        except Exception as error:
            scheduler.process_batch_result = process
            warn(f"SGLang's KV events are no longer discarded: {error!r}")
        return result

    setattr(wrapper, _DISCARDS, True)
    scheduler.process_batch_result = wrapper
