"""Switches the observers of one engine of vLLM: which methods are wrapped, and who watches.

While there is no request, the idle thread carries orders out.
"""

from __future__ import annotations

import weakref
from typing import Any

from kvscope_events.observers.switch import Switch
from kvscope_events.observers.vllm.idle import EngineIdle
from kvscope_events.observers.vllm.observer import End, Observer
from kvscope_events.observers.vllm.patching import Patches
from kvscope_events.observers.vllm.wrappers import Site


class EngineSwitch(Switch[Observer]):
    """The switch of the process's engine."""

    def __init__(
        self, site: Site, patches: Patches, kept: str, idle: EngineIdle, observer: Observer
    ) -> None:
        """kept: name of the methods that stay wrapped: no step calls them."""
        super().__init__(observer)
        self._site = site
        self._patches = patches
        self._kept = kept
        self._idle = idle
        self._outlet = observer.outlet
        self._scheduler: weakref.ref[Any] = weakref.ref(observer.scheduler)

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
        if self.observer.rests:
            self._patches.put_back()
        if self.observer.live:
            self.observer.close()
        else:
            self._idle.stop()
            self._outlet.stop()

    def call_back(self) -> None:
        scheduler = self._scheduler()
        if scheduler is None:
            raise LookupError("its engine has ended")
        observer = self.observer.successor(scheduler)
        self._patches.put_back()
        self.observer = self._idle.observer = observer
        self._outlet.provide(observer.state_for_readers)
        self._site.waiting.append(observer)
