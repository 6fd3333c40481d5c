"""The base of all questions but those with tables of blocks or names; they share one engine."""

from collections.abc import Callable
from typing import Any

from kvscope_events.events import (
    Batch,
    EngineEvent,
    FirstToken,
    RequestFinished,
    RequestPreempted,
    RequestResumed,
    RequestScheduled,
    SequenceFinished,
)
from kvscope_exporter.state.calls import Calls, Request, Sequence
from kvscope_exporter.state.engine import Engine
from kvscope_exporter.state.fold import Fold, Handlers


class CallFold(Fold):
    """Takes transitions, and other events by their type.

    A transition is a method `on_...` that a question overrides; the state has changed when it is
    called. What it says may be None: it began before a gap. By itself, as in a test, a question has
    an engine of its own.
    """

    handlers: dict[Any, Callable[..., None]]

    def __init__(self, handlers: Handlers | None = None) -> None:
        """handlers: by type of event, of those that are no transitions."""
        super().__init__({**(handlers or {})})
        for transition in TRANSITIONS:
            method = f"on_{transition}"
            if getattr(type(self), method) is not getattr(CallFold, method):
                self.handlers[transition] = getattr(self, method)
        self._state: Engine | None = None

    @property
    def engine(self) -> Engine:
        """The engine that it reads."""
        if self._state is None:
            self.join(Engine())
        assert self._state is not None
        return self._state

    def join(self, engine: Engine) -> None:
        """Be about this engine from now on, which hands it everything."""
        self._state = engine
        self.calls = engine.calls
        engine.attach(self)

    calls: Calls
    """Requests and sequences of the engine."""

    def apply(self, event: EngineEvent) -> None:
        """Apply one event to an engine of its own. Raises what it raises itself."""
        self.engine.apply(event)
        self._raise()

    def on_batch(self, batch: Batch) -> None:
        """Apply one step's events to an engine of its own. Raises what it raises itself."""
        self.engine.on_batch(batch)
        self._raise()

    def _raise(self) -> None:
        error = self.engine.given_up.get(self)
        if error is not None:
            raise error

    def on_gap(self) -> None:
        """Batches were lost for an engine of its own."""
        self.engine.on_gap()

    @property
    def num_pending(self) -> int:
        """Requests and sequences of its engine."""
        return self.engine.num_pending

    def on_lost(self) -> None:
        """Batches were lost: all requests and sequences will be forgotten behind this."""

    def on_arrived(self, request: Request) -> None:
        """A request has arrived."""

    def on_added(self, sequence: Sequence) -> None:
        """A request has one more sequence."""

    def on_admitted(self, event: RequestScheduled, request: Request | None) -> None:
        """The first sequence of a request runs."""

    def on_answered(self, event: FirstToken, request: Request | None) -> None:
        """A request has its first token."""

    def on_preempted(self, event: RequestPreempted, sequence: Sequence) -> None:
        """A sequence waits again."""

    def on_resumed(self, event: RequestResumed, sequence: Sequence) -> None:
        """A preempted sequence runs again."""

    def on_left_waiting(self, request: Request) -> None:
        """A request waits, since only preempted sequences are left of it, or none."""

    def on_ended(self, event: SequenceFinished, sequence: Sequence | None) -> None:
        """A sequence has ended; the step that gave it its last token may still come."""

    def on_finished(self, event: RequestFinished, request: Request | None) -> None:
        """A request has ended, and all of its sequences."""

    def on_settled(self, batch: Batch) -> None:
        """A batch was applied."""


TRANSITIONS = (
    *("arrived", "added", "admitted", "answered", "preempted", "resumed", "left_waiting"),
    *("ended", "finished", "settled", "lost"),
)
"""Each is a method of `CallFold` with `on_` before it."""
