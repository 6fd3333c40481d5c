"""Brings the observer into a process: patches vLLM's classes, and waits for a scheduler.

vLLM calls `install` in every process, also in those without a scheduler, and forked children
inherit the patches; so nothing is opened before a scheduler exists. Nothing here raises.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from kvscope_events.observers.declined import DeclinedObserver
from kvscope_events.observers.endpoints import REMEDY, scheduler_endpoint, switched_off
from kvscope_events.observers.log import say, warn
from kvscope_events.observers.outlet import Outlet
from kvscope_events.observers.vllm.gate import refusal
from kvscope_events.observers.vllm.hooks import HOOKS
from kvscope_events.observers.vllm.idle import EngineIdle
from kvscope_events.observers.vllm.introduction import created_of, hello_of, identity_of
from kvscope_events.observers.vllm.observer import Observer
from kvscope_events.observers.vllm.patching import Patches, find
from kvscope_events.observers.vllm.served import engine_index
from kvscope_events.observers.vllm.switch import EngineSwitch
from kvscope_events.observers.vllm.wrappers import Hook, Method, Site
from kvscope_events.wire.endpoint import EndpointError

BIRTH = Hook(
    "vllm.v1.core.sched.scheduler",
    "Scheduler",
    "__init__",
    ("vllm_config", "kv_cache_config"),
    "0.11",
    True,
    lambda observer, scheduler: True,
    None,
)
"""The start of an observer: vLLM loads plugins when its engine core is already being made."""

site = Site()
patches = Patches()
switches: list[EngineSwitch | DeclinedObserver] = []
"""That of the process's engine; at most one."""
UNOBSERVED = "vLLM runs on, unobserved."


def install(hooks: tuple[Hook, ...] = HOOKS) -> None:
    """Patch this process once; a vLLM that differs from those we know is left alone."""
    if switched_off() or patches.methods:
        return
    try:
        found, unknown = find((BIRTH,)), ""
        try:
            found += find(hooks)
        except Exception as error:
            unknown = str(error)
            warn(f"off: {unknown}. {UNOBSERVED}")

        def wrap(hook: Hook, original: Method) -> Method:
            return _born(original, unknown) if hook is BIRTH else hook.wrap(site, hook, original)

        patches.apply(found, wrap)
        os.register_at_fork(after_in_child=_forked)
    except Exception as error:
        warn(f"off: {error}. {UNOBSERVED}")


def _born(original: Method, unknown: str) -> Method:
    """unknown: the reason why no scheduler of this vLLM is observed; empty: it is known."""

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        reason = unknown
        try:
            site.began = True
            while switches:  # an engine made after another in the same process
                switches.pop().close()
            reason = reason or _begin(self)
        except EndpointError as error:
            warn(f"off: {error}. {REMEDY}.")
            return
        except Exception as error:
            reason = f"{type(error).__name__} at the start: {error}"
        if reason:
            if not unknown:
                warn(f"off: {reason}. {UNOBSERVED}")
            _decline(self, reason)

    return wrapper


def _begin(scheduler: Any) -> str:
    """Observe it; else the reason for not doing so."""
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.request import RequestStatus

    reason = refusal(scheduler, Scheduler, patches.methods)
    if reason is not None:
        return reason
    created = created_of(scheduler)
    outlet = Outlet(scheduler_endpoint(engine_index(scheduler.vllm_config)))
    try:
        hello = hello_of(scheduler, outlet.session)
        observer = Observer(scheduler, RequestStatus.RUNNING, created, hello, outlet)
        idle = EngineIdle(observer)
        switch = EngineSwitch(site, patches, BIRTH.method, idle, observer)
        outlet.obey(switch.order)
        observer.start(switch.ended)
        idle.start()
    except BaseException:
        outlet.stop()
        raise
    site.observer = observer
    switches.append(switch)
    say(f"observing engine {hello.engine} of {hello.model_name}; events at {outlet.address}")
    return ""


def _decline(scheduler: Any, reason: str) -> None:
    """Have the page report an engine that is not observed. Never raises."""
    try:
        config = scheduler.vllm_config
        endpoint = scheduler_endpoint(engine_index(config))
        switches.append(DeclinedObserver(endpoint, functools.partial(identity_of, config), reason))
    except Exception as error:
        warn(f"the page does not show that it is off: {error}")


def _forked() -> None:
    """A child has no thread of ours and no scheduler yet; its parent goes on."""
    site.observer = None
    site.waiting.clear()
    switches.clear()
    site.began = False
