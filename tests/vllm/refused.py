"""Schedulers that are not observed, made of vLLM's own classes, and the reason given for each.

    python -m tests.vllm.refused MODEL

prints a line for each of `MODES`, and for two changes of an ordinary scheduler.
"""

import dataclasses
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from kvscope_events.observers.endpoints import scheduler_endpoint
from tests.support.late_reader import reason_heard
from tests.vllm.child import in_child
from tests.vllm.scheduler import BLOCK_SIZE, Driver

MODES = ("hisparse", "circular", "rswa", "encoder-nocache")
BLOCKS = 60


def start(mode: str, model: str) -> dict[str, Any]:
    """Make a scheduler in a process with the plugin."""
    from kvscope_events.observers.vllm import plugin

    said: list[str] = []
    plugin.warn = said.append  # type: ignore[assignment,attr-defined]
    plugin.install()
    Driver(mode, model, BLOCKS, seed=1)
    heard = reason_heard(scheduler_endpoint(0))
    return {
        "case": mode,
        "observed": plugin.site.observer is not None,
        "said": said,
        "heard": heard,
    }


def second_pool(driver: Driver) -> None:
    from vllm.v1.core.block_pool import BlockPool

    group = driver.scheduler.kv_cache_manager.coordinator.single_type_managers[1]
    group.block_pool = BlockPool(BLOCKS, True, BLOCK_SIZE)


def manager_of_a_plugin(driver: Driver) -> None:
    """A platform may register layers of its own, with a class of its own for their blocks."""
    from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager
    from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry

    manager = driver.scheduler.kv_cache_manager.coordinator.single_type_managers[0]
    kind = dataclasses.make_dataclass(
        "OtherSpec", [], bases=(type(manager.kv_cache_spec),), frozen=True
    )
    other = type("OtherManager", (FullAttentionManager,), {"__module__": "other_platform"})
    base = type(manager.kv_cache_spec)
    KVCacheSpecRegistry.register(kind, other, uniform_type_base_spec=base)
    fields = {f.name: getattr(manager.kv_cache_spec, f.name) for f in dataclasses.fields(base)}
    found = KVCacheSpecRegistry.get_manager_class(kind(**fields), None)
    manager.__class__ = found


def changed(change: Callable[[Driver], None], model: str) -> dict[str, Any]:
    from vllm.v1.core.sched.scheduler import Scheduler

    from kvscope_events.observers.vllm.gate import refusal

    driver = Driver("hybrid", model, BLOCKS, seed=1)
    before = refusal(driver.scheduler, Scheduler, frozenset())
    change(driver)
    said = refusal(driver.scheduler, Scheduler, frozenset())
    return {"case": change.__name__, "before": before, "said": [said]}


def main() -> None:
    model = sys.argv[1]
    for mode in MODES:
        print(json.dumps(in_child(partial(start, mode, model))), flush=True)
    for change in (second_pool, manager_of_a_plugin):
        print(json.dumps(in_child(partial(changed, change, model))), flush=True)


if __name__ == "__main__":
    main()
