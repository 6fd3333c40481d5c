"""The requests and sequences of one engine, and all questions without tables of blocks, each of
which may fail alone.

        batches ──► Engine ──► Calls ──► transitions ─┐
                       └───────► other events ────────┴─► questions

An event is looked up once. A question sees it when the state has changed, and before the next one.
Folds about single blocks have tables of their own and are listeners beside: taken by turns at every
event, they would push each other's out of the processor's caches, which takes a quarter longer.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from kvscope_events.events import Batch, EngineEvent, StepCompleted
from kvscope_exporter.state.calls import Calls

logger = logging.getLogger(__name__)

MEASURED = 16
"""In one batch of this number, each question is measured by itself."""


class Part(Protocol):
    """A question, as the engine needs it; `CallFold` is its base."""

    batch: Batch
    handlers: dict[Any, Callable[..., None]]
    """By type of event, and by name of transition."""

    @property
    def name(self) -> str:
        """Unique."""


_Receiver = tuple[Callable[..., None], Part | None]
"""A method, and the question whose fault it is if it raises; None: the engine's."""
_Table = dict[Any, tuple[_Receiver, ...]]


class Engine:
    """A listener; its parts are the questions, in the order in which they joined."""

    name = "state"
    wants_snapshot = False

    def __init__(self, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        """now_ns: the clock by which the cost of questions is measured."""
        self._now_ns = now_ns
        self.calls = Calls(self._hand_on)
        self.questions: list[Part] = []
        """Those that work."""
        self.given_up: dict[Part, Exception] = {}
        self._spent_ns: Counter[str] = Counter()
        self._failures: list[str] = []
        self._plain: _Table = {}
        self._timed: _Table = {}
        self._table = self._plain
        self._until_measured = 1
        self._wire()

    @property
    def num_pending(self) -> int:
        """Requests and sequences that have begun and not ended."""
        return len(self.calls)

    def attach(self, question: Part) -> None:
        """Hand it everything from now on."""
        self.questions = [*self.questions, question]
        self._wire()

    def detach(self, question: Part) -> None:
        """Hand it nothing more."""
        self.questions = [other for other in self.questions if other is not question]
        self._wire()

    def apply(self, event: EngineEvent) -> None:
        """Apply one event of the present batch."""
        self._hand_on(type(event), event)

    def on_batch(self, batch: Batch) -> None:
        """Apply one step's events."""
        self.calls.batch = batch
        for question in self.questions:
            question.batch = batch
        self._until_measured -= 1
        self._table = self._plain if self._until_measured else self._timed
        get = self._table.get
        for event in batch.events:
            for receive, part in get(type(event), ()):
                try:
                    receive(event)
                except Exception as error:
                    self._fail(part, error)
        self._hand_on("settled", batch)
        self._until_measured = self._until_measured or MEASURED

    def on_gap(self) -> None:
        """Batches were lost before the next one: nothing is known of requests from before it."""
        self._hand_on("lost")
        self.calls.clear()

    def check(self) -> None:
        """Assert that the state is consistent; O(requests + sequences)."""
        self.calls.check()

    @property
    def parts(self) -> tuple[Part, ...]:
        """The questions, those that were given up included."""
        return (*self.questions, *self.given_up)

    def failed(self, part: object) -> bool:
        """Whether this question was given up."""
        return part in self.given_up

    def costs(self) -> tuple[dict[str, int], list[str]]:
        """Nanoseconds by question, and the names of those given up, since the last call."""
        spent = {name: ns * MEASURED for name, ns in self._spent_ns.items()}
        failures, self._failures = self._failures, []
        self._spent_ns.clear()
        return spent, failures

    def _hand_on(self, key: Any, *change: Any) -> None:
        for receive, part in self._table.get(key, ()):
            try:
                receive(*change)
            except Exception as error:
                self._fail(part, error)

    def _fail(self, question: Part | None, error: Exception) -> None:
        if question is None:
            raise error
        if question not in self.given_up:
            self.given_up[question] = error
            self._failures.append(question.name)
            logger.error("fold %s failed and is given up", question.name, exc_info=error)
            self.detach(question)

    def _wire(self) -> None:
        """The calls come first, but for the end of a step, which still names what has ended."""
        table: dict[Any, list[_Receiver]] = {
            key: [(handler, None)] for key, handler in self.calls.handlers.items()
        }
        for question in self.questions:
            for key, handler in question.handlers.items():
                table.setdefault(key, []).append((handler, question))
        table.setdefault(StepCompleted, []).append((self.calls.forget_ended, None))
        self._plain.clear()  # the same two tables, since one may be in use
        self._timed.clear()
        for key, found in table.items():
            self._plain[key] = tuple(found)
            self._timed[key] = tuple((self._timer(*pair), pair[1]) for pair in found)

    def _timer(self, receive: Callable[..., None], owner: Part | None) -> Callable[..., None]:
        if owner is None:
            return receive
        name, now_ns = owner.name, self._now_ns

        def timed(*change: Any) -> None:
            began_ns = now_ns()
            receive(*change)
            self._spent_ns[name] += now_ns() - began_ns

        return timed
