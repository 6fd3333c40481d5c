"""Takes an observer out of a running server by order, and lets a successor go on.

An order only notes what is wanted: the engine's thread carries it out between two steps. While the
observer rests, none of ours is around a method that a step calls, and the stream goes on with
heartbeats.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

from kvscope_events.observers.switched import SwitchReply, SwitchState

MAX_PROBLEM = 400


class Switchable(Protocol):
    """An observer of an engine, as far as orders are concerned."""

    live: bool
    off_wanted: bool
    """Set by another thread: rest after this step."""
    rests: bool
    """Whether it was switched off by order."""

    @property
    def returning(self) -> bool:
        """Whether it has yet to go on where the one before it rests, and readers know nothing."""


AnObserver = TypeVar("AnObserver", bound=Switchable)


class Switch(ABC, Generic[AnObserver]):
    """The observers of one engine, one after the other."""

    def __init__(self, observer: AnObserver) -> None:
        self.observer = observer
        """The last one."""

    def order(self, on: bool) -> bytes:
        """Note what is wanted, and say what is so; on the publisher's thread."""
        state: SwitchState | None = None
        problem = ""
        try:
            observer = self.observer
            # Not while it is being carried out: the engine's thread takes the wrappers off.
            may_refuse = not on and observer.live and not observer.off_wanted
            if may_refuse and (reason := self.refusal()):
                state, problem = "cannot be switched", reason
            else:
                observer.off_wanted = not on
                if on and observer.rests:
                    self.call_back()
        except Exception as error:  # it runs in a foreign server: report it
            problem = f"{type(error).__name__}: {error}"
        return SwitchReply(os.getpid(), state or self._state(), problem[:MAX_PROBLEM]).encoded()

    def refusal(self) -> str:
        """The reason why the present observer cannot be switched off exactly; empty: it can."""
        return ""

    @abstractmethod
    def call_back(self) -> None:
        """Have a successor of `observer`, which rests, go on before the next step."""

    def _state(self) -> SwitchState:
        observer = self.observer
        if not observer.live:
            return "off" if observer.rests else "stopped"
        if observer.off_wanted:
            return "leaving"
        return "returning" if observer.returning else "on"
