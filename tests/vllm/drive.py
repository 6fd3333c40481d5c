"""Drives a vLLM's real scheduler, manager and pool without a model, and prints what was observed.

    python -m tests.vllm.drive MODE[,MODE...] MODEL [--steps N] [--seed S] [--blocks B]

in the Python of a vLLM, with this checkout on PYTHONPATH and KVSCOPE_OBSERVER_DIR set. Each mode
runs in a child of its own and prints one line. A mode joins words by a dash: async, hybrid (full
attention and two sliding windows), swa, partial (a Mamba group, whose hits end inside blocks),
prio, nocache, force (resets that preempt), deferred (frees wait for steps in flight), spec (drafts
that are partly rejected), eagle (the same, for whose drafter a lookup leaves out a block). With
`switched-` before it, the observer goes off and on meanwhile; with `bare-`, the same requests are
served unobserved.
"""

import argparse
import json
import sys
from functools import partial
from typing import Any

from tests.vllm.child import in_child
from tests.vllm.scheduler import Driver
from tests.vllm.switched import bare, switched

CYCLED = {"switched": switched, "bare": bare}


def run(mode: str, model: str, steps: int, seed: int, blocks: int) -> dict[str, Any]:
    """Drive an observed scheduler; returns what was counted and what differed."""
    from kvscope_events.observers.vllm.plugin import install, site
    from tests.vllm.beside import Beside
    from tests.vllm.bill import billed
    from tests.vllm.replay import Replay

    install()
    driver = Driver(mode, model, blocks, seed)
    observer = site.observer
    if observer is None:
        return {"mode": mode, "refused": True}
    replay = Replay(observer.outlet.bus, observer.names)
    beside = Beside.of(driver.scheduler.kv_cache_manager)
    observer.flush()
    for _ in range(steps):
        driver.load()
        driver.step()
        if site.observer is None:
            break
        if not observer.buffer:  # async: else events of the step in flight wait here
            replay.compare(driver.scheduler.kv_cache_manager.block_pool)
            if beside is not None:
                beside.compare(replay.batches)
        driver.disturb()
    driver.drain()
    live = site.observer is not None
    if live:
        replay.compare(driver.scheduler.kv_cache_manager.block_pool)
        replay.ledger.check()
    idle_snapshot = live and replay.snapshot_comes()
    replay.take()
    return {
        "version": sys.modules["vllm"].__version__,
        "mode": mode,
        "live": live,
        "requests": driver.requests,
        "steps": replay.steps,
        "compared": replay.compared,
        "differing": dict(replay.differing),
        "violations": replay.violations,
        "self_check_differences": observer.differences,
        "left_over": len(replay.left_over()),
        "tracked": len(observer.sequences) + len(observer.deferred) + len(observer.steps),
        "idle_snapshot": idle_snapshot,
        "aborts": driver.aborts,
        "resets": driver.resets,
        "forced": driver.forced,
        "queried": [replay.queried, driver.served["queries"]],
        "hit": [replay.hit, driver.served["hits"]],
        "tokens": {
            "prefill": replay.prefill,
            "decode": replay.decode,
            "output": replay.output_tokens,
            "finished": sum(end.output_tokens for end in replay.finished.values()),
        },
        "reasons": _count(end.reason for end in replay.finished.values()),
        "events": dict(replay.events),
        "causes": dict(replay.causes),
        "examples": replay.examples,
        "groups": None if beside is None else beside.found(),
        "bill": billed(replay.batches),
    }


def _count(values: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode")
    parser.add_argument("model")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--blocks", type=int, default=60)
    given = parser.parse_args()
    for mode in given.mode.split(","):
        kind, _, plain = mode.partition("-")
        if kind in CYCLED:
            work = partial(CYCLED[kind], plain, given.model, given.seed, given.blocks)
        else:
            work = partial(run, mode, given.model, given.steps, given.seed, given.blocks)
        found = in_child(work)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
