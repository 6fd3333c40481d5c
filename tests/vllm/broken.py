"""Breaks the observer in every way in turn and watches what the scheduler does.

    python -m tests.vllm.broken MODEL

prints a line for each of our functions around a method of vLLM: it raises at its first call, while
random requests are served. Then one line for each way in which a vLLM may differ from those known.
"""

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from kvscope_events.bus import EventBus
from kvscope_events.events import EngineEvent, ObserverStopped
from kvscope_events.observers.endpoints import scheduler_endpoint
from kvscope_events.observers.vllm import plugin
from kvscope_events.observers.vllm.hooks import HOOKS
from kvscope_events.observers.vllm.patching import Found, UnknownMethodError, find
from kvscope_events.observers.vllm.wrappers import Hook
from kvscope_events.wire.socket_file import SocketFile
from tests.vllm.child import in_child
from tests.vllm.scheduler import Driver

MODE = "partial-deferred-force"
STEPS = 160
BLOCKS = 60


def raises(*args: Any) -> Any:
    raise LookupError("broken on purpose")


def serve(model: str) -> Driver:
    """Serve requests in a way that reaches nearly every method; then call the others."""
    driver = Driver(MODE, model, BLOCKS, seed=3)
    for _ in range(STEPS):
        driver.load()
        driver.step()
        driver.disturb()
    driver.drain()
    pool = driver.scheduler.kv_cache_manager.block_pool
    driver.scheduler.kv_cache_manager.remove_skipped_blocks("nobody", 0)
    pool.evict_blocks({1, 2})
    pool.touch([pool.blocks[3]])
    pool.free_blocks(iter([pool.blocks[3]]))
    blocks = pool.get_new_blocks(1)
    pool.unpin_blocks(iter(blocks), raises)
    group = driver.scheduler.kv_cache_manager.coordinator.single_type_managers[0]
    source, copy = pool.get_new_blocks(2)
    group.req_to_blocks["nobody"] = [source]
    group._apply_cow("nobody", 0, source, copy)
    driver.scheduler.shutdown()
    return driver


def bare(model: str) -> dict[str, Any]:
    return {"decisions": serve(model).decisions.hexdigest()}


def broken(hook: Hook, part: str, model: str) -> dict[str, Any]:
    """Serve with one function of ours broken; empty for a method that this vLLM lacks."""
    before = _attributes()
    if not any(each.hook is hook for each in before):
        return {}
    heard: list[str] = []
    _listen(heard)
    changed = hook._replace(**{part: raises})
    plugin.install(tuple(changed if one is hook else one for one in HOOKS))
    decisions = serve(model).decisions.hexdigest()
    return {
        "method": f"{hook.owner}.{hook.method}",
        "part": part,
        "decisions": decisions,
        "off": plugin.site.observer is None,
        "reasons": heard,
        "restored": _same(before),
    }


def other_vllm(change: Callable[[], None], model: str) -> dict[str, Any]:
    """Start on a vLLM that is not as known."""
    change()
    before = _attributes()
    plugin.install()
    decisions = serve(model).decisions.hexdigest()
    return {
        "change": change.__name__,
        "decisions": decisions,
        "off": plugin.site.observer is None,
        "untouched": _same(before),
    }


def renamed_parameter() -> None:
    from vllm.v1.core.block_pool import BlockPool

    original = BlockPool.touch

    def touch(self: Any, things: Any) -> None:
        original(self, things)

    BlockPool.touch = touch


def missing_method() -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    original = Scheduler._free_request
    Scheduler._release_request = original
    del Scheduler._free_request
    Scheduler.__getattr__ = lambda self, name: (
        original.__get__(self) if name == "_free_request" else _missing(name)
    )


def taken_socket() -> None:
    """Another live process publishes under this name."""
    SocketFile(scheduler_endpoint(0).removeprefix("ipc://"))


def _missing(name: str) -> Any:
    raise AttributeError(name)


def _listen(heard: list[str]) -> None:
    """Hear what every observer says last."""
    send = EventBus.send

    def send_heard(self: EventBus, events: list[EngineEvent]) -> None:
        heard.extend(e.reason for e in events if isinstance(e, ObserverStopped))
        send(self, events)

    EventBus.send = send_heard  # type: ignore[method-assign]


def _attributes() -> list[Found]:
    """The methods of a step that are as known."""
    found = []
    for hook in HOOKS:
        with suppress(UnknownMethodError):
            found += find((hook,))
    return found


def _same(before: list[Found]) -> bool:
    return all(owner.__dict__.get(hook.method) is original for hook, owner, original in before)


def main() -> None:
    model = sys.argv[1]
    print(json.dumps(in_child(partial(bare, model))), flush=True)
    for hook in HOOKS:
        for part in ("before", "after"):
            if getattr(hook, part) is not None:
                found = in_child(partial(broken, hook, part, model))
                print(json.dumps(found), flush=True)
    for change in (renamed_parameter, missing_method, taken_socket):
        print(json.dumps(in_child(partial(other_vllm, change, model))), flush=True)


if __name__ == "__main__":
    main()
