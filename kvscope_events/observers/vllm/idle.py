"""Serves readers while the engine idles, and compares the whole pool with the observer's counts.

vLLM makes no call while it has no request, so a reader that comes then would wait for its first
state. This thread only reads; it gives way to the engine as soon as that wakes up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvscope_events.observers.idle import IdleThread
from kvscope_events.observers.vllm.snapshot import read_state

if TYPE_CHECKING:
    from kvscope_events.observers.vllm.observer import Observer

QUIET_TICKS = 4
"""Ticks without a call of the scheduler after which the pool is compared, once."""


class EngineIdle(IdleThread):
    """The idle thread of the present observer."""

    def __init__(self, observer: Observer) -> None:
        super().__init__()
        self.observer = observer
        """May be replaced by its successor at any time."""
        self._version = -1
        self._quiet = 0

    def tick(self) -> None:
        """One look at the engine."""
        observer = self.observer
        if not observer.live:
            observer.outlet.serve(lambda: True)
            return
        if observer.waits:
            self._wait(observer)
            return
        version = observer.version
        if version != self._version:
            self._version = version
            self._quiet = 0
            return
        self._quiet += 1
        if observer.off_wanted and _is_idle(observer, version):
            observer.rest()
            return
        observer.outlet.serve(lambda: _is_idle(observer, version))
        if self._quiet == QUIET_TICKS:
            self._compare(observer, version)

    def _wait(self, observer: Observer) -> None:
        """It goes on before the next step; an engine without requests makes none."""
        scheduler = observer.scheduler
        if scheduler is None:  # it went on and off again just now
            return
        requests = scheduler.requests
        self._quiet = 0 if requests else self._quiet + 1
        if self._quiet >= QUIET_TICKS:
            if observer.off_wanted:
                observer.rest()
                return
            if not observer.introduced:
                observer.introduce(lambda: observer.waits and not requests)
        observer.outlet.serve(lambda: True)

    def _compare(self, observer: Observer, version: int) -> None:
        counts, pool = observer.counts.as_tuple(), observer.pool
        if pool is None or not _is_idle(observer, version):
            return
        state = read_state(
            pool, observer.names, observer.created.reserved, lambda: _is_idle(observer, version)
        )
        if state is not None and state.counts.as_tuple() != counts:
            observer.in_doubt = True


def _is_idle(observer: Observer, version: int) -> bool:
    return not observer.depth and not observer.buffer and observer.version == version
