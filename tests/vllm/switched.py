"""Switches the observer of a driven scheduler off and on, and compares what it reports in between.

Orders go to the `Switch` that answers those of readers. Half of them come between two calls of the
scheduler, the others while one is under way.
"""

import random
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.vllm.scheduler import Driver

CYCLES = 50
IDLE_SECONDS = 10
MAX_STEPS = 4
"""Between two orders."""


def bare(mode: str, model: str, seed: int, blocks: int) -> dict[str, Any]:
    """The same requests and as many steps, unobserved."""
    driver = Driver(mode, model, blocks, seed)
    _serve(driver, seed, lambda on: None, lambda: None)
    return {"mode": mode, "decisions": driver.decisions.hexdigest()}


def switched(mode: str, model: str, seed: int, blocks: int) -> dict[str, Any]:
    """Serve requests while the observer goes off and on."""
    from kvscope_events.observers.vllm.plugin import BIRTH, install, patches, site, switches
    from tests.vllm.replay import Replay

    install()
    driver = Driver(mode, model, blocks, seed)
    first: Any = site.observer
    replay = Replay(first.outlet.bus, first.names)
    first.flush()
    pool = driver.scheduler.kv_cache_manager.block_pool
    seen = {"off": 0, "on": 0, "wrapped_while_off": 0, "wrong_groups": 0}

    def order(on: bool) -> bytes:
        return switches[-1].order(on)

    def compare() -> None:
        observer = site.observer
        if observer is None:
            seen["off"] += 1
            wrapped = {name for owner, name, *_ in patches.replaced if _is_ours(owner, name)}
            seen["wrapped_while_off"] += wrapped != {BIRTH.method} and not site.waiting
            replay.take()
        elif not observer.buffer:
            seen["on"] += 1
            replay.compare(pool)
            seen["wrong_groups"] += _wrong_groups(observer)

    _serve(driver, seed, order, compare)
    decisions = driver.decisions.hexdigest()
    idle = _idle(driver, replay, order)
    return {
        "version": sys.modules["vllm"].__version__,
        "mode": mode,
        "live": site.observer is not None,
        "seen": seen,
        "idle": idle,
        "steps": replay.steps,
        "compared": replay.compared,
        "differing": dict(replay.differing),
        "examples": replay.examples,
        "violations": replay.violations,
        "self_check_differences": 0 if site.observer is None else site.observer.differences,
        "events": dict(replay.events),
        "decisions": decisions,
    }


def _serve(
    driver: Driver, seed: int, order: Callable[[bool], Any], compare: Callable[[], None]
) -> None:
    """Each cycle is an order to go off and one to go on, with a few steps after each."""
    chance = random.Random(seed + 1)
    for number in range(2 * CYCLES):
        give = partial(order, bool(number % 2))
        if chance.random() < 0.5:
            give()
        else:
            _during(driver.scheduler.kv_cache_manager.block_pool, give)
        for _ in range(chance.randrange(1, MAX_STEPS)):
            driver.load()
            driver.step()
            compare()
            driver.disturb()
    driver.drain()


def _during(pool: Any, give: Callable[[], None]) -> None:
    """Give the order when the pool is next asked whether blocks suffice: inside a step."""
    original = pool.get_num_free_blocks

    def get_num_free_blocks() -> int:
        vars(pool).pop("get_num_free_blocks", None)
        give()
        return int(original())

    pool.get_num_free_blocks = get_num_free_blocks


def _idle(driver: Driver, replay: Any, order: Callable[[bool], bytes]) -> dict[str, bool]:
    """Off and on while there is no request: the idle thread does it, and readers get the state.

    Then requests come again.
    """
    from kvscope_events.observers.vllm.plugin import site

    found = {"off": _comes(order, "off")}
    replay.take()
    found["unknown"] = not replay.ledger.known
    found["on"] = _comes(order, "on")
    replay.take()
    found["known"] = replay.ledger.known and site.observer is None
    before = replay.compared
    for _ in range(20):
        driver.load()
        driver.step()
        if site.observer is not None and not site.observer.buffer:
            replay.compare(driver.scheduler.kv_cache_manager.block_pool)
    found["compared"] = replay.compared > before
    driver.drain()
    return found


def _comes(order: Callable[[bool], bytes], wanted: str) -> bool:
    from kvscope_events.observers.switched import SwitchReply

    until = time.monotonic() + IDLE_SECONDS
    while time.monotonic() < until:
        if SwitchReply.decoded(order(wanted == "on")).state == wanted:
            return True
        time.sleep(0.1)
    return False


def _wrong_groups(observer: Any) -> int:
    """Blocks of requests whose group is not that of vLLM's own lists."""
    if observer.groups is None:
        return 0
    return sum(
        observer.groups[block.block_id] != group
        for request_id in observer.scheduler.requests
        for group, blocks in enumerate(observer.manager.get_blocks(request_id).blocks)
        for block in blocks
        if not block.is_null
    )


def _is_ours(owner: type, name: str) -> bool:
    from kvscope_events.observers.vllm.plugin import patches

    return any(
        owner.__dict__.get(name) is wrapper
        for other, method, _, wrapper in patches.replaced
        if (other, method) == (owner, name)
    )
