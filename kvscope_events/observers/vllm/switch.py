"""Takes the observer out of a running engine by order, and lets a successor go on.

An order only notes what is wanted: the engine's thread carries it out between two steps, or the
idle thread while there is no request. While the observer rests, none of ours is around a method
that a step calls, and the stream goes on with heartbeats.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

from kvscope_events.observers.switched import Switched, SwitchState
from kvscope_events.observers.vllm.idle import IdleThread
from kvscope_events.observers.vllm.observer import End, Observer
from kvscope_events.observers.vllm.patching import Patches
from kvscope_events.observers.vllm.wrappers import Site

MAX_PROBLEM = 400


class Switch:
    """The observers of one engine, one after the other."""

    def __init__(
        self, site: Site, patches: Patches, kept: str, idle: IdleThread, observer: Observer
    ) -> None:
        """kept: name of the methods that stay wrapped: no step calls them."""
        self._site = site
        self._patches = patches
        self._kept = kept
        self._idle = idle
        self._observer = observer  # the last one
        self._outlet = observer.outlet
        self._scheduler: weakref.ref[Any] = weakref.ref(observer.scheduler)
        self._problem = ""

    def order(self, on: bool) -> bytes:
        """Note what is wanted, and say what is so; on the publisher's thread."""
        self._problem = ""
        self._observer.off_wanted = not on
        if on and self._observer.rests:
            try:
                self._return()
            except Exception as error:  # it runs in a foreign server: report it
                self._problem = f"{type(error).__name__}: {error}"[:MAX_PROBLEM]
        return Switched(os.getpid(), self._state(), self._problem).encoded()

    def ended(self, how: End) -> None:
        """The observer's word that it has ended, before it forgets the engine."""
        self._site.observer = None
        self._site.waiting.clear()
        if how == "broken":
            self._patches.restore()
        elif how == "rests":
            self._patches.lift(self._kept)
        else:
            self._idle.stop()

    def close(self) -> None:
        """Another engine begins in this process."""
        if self._observer.rests:
            self._patches.put_back()
        if self._observer.live:
            self._observer.close()
        else:
            self._idle.stop()
            self._outlet.stop()

    def _return(self) -> None:
        scheduler = self._scheduler()
        if scheduler is None:
            raise LookupError("its engine has ended")
        observer = self._observer.successor(scheduler)
        self._patches.put_back()
        self._observer = self._idle.observer = observer
        self._outlet.provide(observer.state_for_readers)
        self._site.waiting.append(observer)

    def _state(self) -> SwitchState:
        observer = self._observer
        if not observer.live:
            return "off" if observer.rests else "stopped"
        if observer.off_wanted:
            return "leaving"
        return "returning" if observer.waits and not observer.introduced else "on"
