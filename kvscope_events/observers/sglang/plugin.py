"""Brings the observer into a process: wraps the constructor of SGLang's scheduler, and waits.

SGLang loads plugins in each of its processes, before a scheduler is built; most of them never build
one, and the module must not be imported for it. Nothing here raises.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from kvscope_events.observers.declined import DeclinedObserver
from kvscope_events.observers.endpoints import REMEDY, scheduler_endpoint
from kvscope_events.observers.log import say, speak_as, warn
from kvscope_events.observers.outlet import Outlet
from kvscope_events.observers.sglang import recorder, start
from kvscope_events.observers.sglang.content import Content
from kvscope_events.observers.sglang.gate import TESTED, refusal
from kvscope_events.observers.sglang.introduction import (
    created_of,
    hello_of,
    identity_of,
    tier_of,
    version,
)
from kvscope_events.observers.sglang.observer import Observer
from kvscope_events.observers.sglang.switch import SchedulerIdle, SchedulerSwitch
from kvscope_events.wire.endpoint import EndpointError

NAMES_VARIABLE = "KVSCOPE_OBSERVER_NAMES"
"""`on` or `off`: whether pages are named; by default where that is cheap, see `_wanted`."""
_CHEAP_PAGE = 16
_MODULE = "sglang.srt.managers.scheduler"
_NAMED_FOR_US = (
    "its radix tree names pages for the observer alone, and cannot be made to stop. After a start "
    f"with {NAMES_VARIABLE}=off it can be switched, and pages have no names"
)
_IN_STEP = "the ranks of data-parallel attention take each step together"

switches: list[SchedulerSwitch | DeclinedObserver] = []
"""That of the process's scheduler; at most one."""
_switched_on = False
"""Whether a tree of this process reports names for us alone."""


def current() -> Observer | None:
    """The last observer of this process."""
    last = switches[-1] if switches else None
    return last.observer if isinstance(last, SchedulerSwitch) else None


def install() -> None:
    """Wrap the constructor, once; a process without the scheduler's module has no scheduler."""
    module = sys.modules.get(_MODULE)
    if module is None or hasattr(module.Scheduler.__init__, "_kvscope"):
        return
    speak_as("sglang.kvscope")
    initialise = module.Scheduler.__init__

    @functools.wraps(initialise)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        begun = start.begin(self, module, initialise, args, kwargs)
        try:
            initialise(self, *args, **kwargs)
        except BaseException:
            if begun is not None:
                begun.failed()
            raise
        if begun is not None:
            begun.done()
        if not observe(self, module) and _switched_on:
            recorder.stop(self)

    wrapper._kvscope = True  # type: ignore[attr-defined]
    _switch_names_on()
    module.Scheduler.__init__ = wrapper


def _switch_names_on() -> None:
    """The tree reports names only if it was built so; the one in Rust cannot be switched later."""
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams

    build = CacheInitParams.__init__

    @functools.wraps(build)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        global _switched_on
        build(self, *args, **kwargs)
        try:
            # A tree without rows only sorts the waiting requests: nothing would drain its events.
            of_pool = self.req_to_token_pool is not None
            if of_pool and _wanted(int(self.page_size)) and not self.enable_kv_cache_events:
                self.enable_kv_cache_events = _switched_on = True
        except Exception as error:
            warn(f"pages are not named: {error!r}")

    CacheInitParams.__init__ = wrapper


def _wanted(page: int) -> bool:
    """Names are cheap for large pages; a tree in Python takes 10 to 34 ms for a prompt of 8,192
    tokens in pages of one."""
    setting = os.environ.get(NAMES_VARIABLE, "").strip().lower()
    return setting == "on" or (setting != "off" and page >= _CHEAP_PAGE)


def observe(scheduler: Any, module: Any) -> bool:
    """Whether its pages are observed from now on; if they cannot be, that is reported."""
    try:
        parallel = _parallel(scheduler, module)
        if getattr(parallel, "attn_tp_rank", parallel.tp_rank) != 0:
            return False
        if getattr(parallel, "pp_rank", None):  # the first stage reports for all of them
            return False
        while switches:
            switches.pop().close()
        reason = _begin(scheduler, parallel)
    except EndpointError as error:
        warn(f"off: {error}. {REMEDY}.")
        return False
    except Exception as error:
        reason = f"{type(error).__name__} at the start: {error}"
    if reason:
        warn(f"off: {reason}. SGLang runs on, unobserved.")
        _decline(scheduler, module, reason)
    return not reason


def _parallel(scheduler: Any, module: Any) -> Any:
    """Sizes and ranks of the process."""
    return scheduler.ps if hasattr(scheduler, "ps") else module.get_parallel()


def _begin(scheduler: Any, parallel: Any) -> str:
    """Observe it; else the reason for not doing so."""
    reason = refusal(scheduler)
    if reason is not None:
        return reason
    from sglang.srt.managers.schedule_batch import ScheduleBatch

    several = getattr(parallel, "attn_dp_size", 1) > 1
    rank = start.engine_of(parallel)
    created, tier = created_of(scheduler), tier_of(scheduler)
    content = _content_of(scheduler, created.block_size)
    outlet = Outlet(scheduler_endpoint(rank, "sglang"))
    try:
        names = content is not None
        hello = hello_of(scheduler, outlet.session, rank, names=names, tier=tier is not None)
        begun = Observer(scheduler, ScheduleBatch, created, hello, outlet, content, tier)
        idle = SchedulerIdle(begun)
        switch = SchedulerSwitch(begun, idle, scheduler, _never_off(content, in_step=several))
        outlet.obey(switch.order)
        begun.start(idle)
    except BaseException:
        outlet.stop()
        raise
    switches.append(switch)
    known = "" if version() in TESTED else " (this release was not tested)"
    say(f"observing engine {rank} of {hello.model_name}{known}; events at {outlet.address}")
    return ""


def _decline(scheduler: Any, module: Any, reason: str) -> None:
    """Have the page report that its pages are not observed. Never raises."""
    try:
        rank = start.engine_of(_parallel(scheduler, module))
        declined = DeclinedObserver(
            scheduler_endpoint(rank, "sglang"),
            lambda session: identity_of(scheduler.server_args, session, rank),
            reason,
        )
        switches.append(declined)
    except Exception as error:
        warn(f"the page does not show that it is off: {error}")


def _never_off(content: Content | None, *, in_step: bool) -> str:
    """The reason why an observer cannot be switched off; empty: it can.

    in_step: other ranks wait for each of its steps.
    """
    if in_step:
        return _IN_STEP
    return "" if content is None or content.can_be_stopped else _NAMED_FOR_US


def _content_of(scheduler: Any, page: int) -> Content | None:
    """None: the tree reports no names, or they are not wanted."""
    tree = scheduler.tree_cache
    publisher = getattr(scheduler, "kv_events_publisher", None)
    publishes = bool(getattr(publisher, "enable_kv_cache_events", False))
    if getattr(tree, "disable", False) or not hasattr(tree, "take_events") or not _wanted(page):
        return None
    if not publishes and not _switched_on:
        return None
    return Content(scheduler, page, publishes=publishes)
