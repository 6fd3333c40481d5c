"""Switches the observers of one scheduler of SGLang, each between two passes of its loop."""

from __future__ import annotations

from typing import Any

from kvscope_events.observers.idle import IdleThread
from kvscope_events.observers.sglang.hooks import boundaries
from kvscope_events.observers.sglang.observer import Observer
from kvscope_events.observers.sglang.patching import Arguments, Keywords, Patches
from kvscope_events.observers.switch import Switch


class SchedulerIdle(IdleThread):
    """Serves readers while SGLang has no request: its loop may sleep for a second at a time."""

    def __init__(self, observer: Observer) -> None:
        super().__init__()
        self.observer = observer
        """May be replaced by its successor at any time."""
        self._version = -1

    def tick(self) -> None:
        observer = self.observer
        version = observer.version
        if not observer.live or observer.returning:
            observer.outlet.serve(lambda: True)
        elif version == self._version:
            observer.outlet.serve(lambda: not observer.events)
        self._version = version


class SchedulerSwitch(Switch[Observer]):
    """The switch of the process's scheduler."""

    def __init__(self, observer: Observer, idle: SchedulerIdle, scheduler: Any, never: str) -> None:
        """never: the reason why this scheduler's observer cannot be switched; empty: it can."""
        super().__init__(observer)
        self._idle = idle
        self._scheduler = scheduler
        self._never = never
        self._gate: Patches | None = None

    def refusal(self) -> str:
        covered = self.observer.patches.covered()
        return self._never or (covered and f"other code has replaced {covered} meanwhile")

    def call_back(self) -> None:
        """SGLang's thread finds the successor at the next pass; until then it sees nothing else."""
        successor = self.observer.successor()
        gate = Patches(successor.fail)

        def pass_begins(args: Arguments, kwargs: Keywords) -> None:
            gate.restore()
            successor.begin()

        gate.apply(boundaries(self._scheduler, pass_begins))
        self._gate = gate
        self.observer = self._idle.observer = successor

    def close(self) -> None:
        """Another scheduler begins in this process."""
        if self._gate is not None:
            self._gate.restore()
        self._idle.stop()
        self.observer.close()
