"""Switches the observer of a driven scheduler off and on, and compares what it reports in between.

Orders go to the `Switch` that answers those of readers. Half of them come between two passes of
the scheduler's loop, the others in the middle of a step.
"""

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

MOST_PASSES = 6
"""Passes of the loop between two orders, at most."""

MOST_PROBLEMS = 5


class Kept:
    """Stands for SGLang's publisher of KV events, as `--kv-events-config` names it."""

    events: list[Any]

    def __init__(self, **_: Any) -> None:
        Kept.events = []

    def publish(self, batch: Any) -> None:
        Kept.events += batch.events

    def shutdown(self) -> None:
        """It has nothing open."""


def keep_published() -> None:
    """Offer `Kept` to SGLang."""
    from sglang.srt.disaggregation.kv_events import EventPublisherFactory

    EventPublisherFactory.register_publisher("kept", Kept)


def published() -> list[Any]:
    """Names that SGLang's publisher got, with what happened to each, in order."""
    return [
        [type(event).__name__, name]
        for event in getattr(Kept, "events", ())
        for name in getattr(event, "block_hashes", ())
    ]


class Cycles:
    """A load that gives orders while it is served; stands between it and the scheduler."""

    def __init__(self, load: Any, look: Callable[[], None], wrappers: Callable[[Any], int]) -> None:
        """look: compares the events with SGLang's own counts; wrappers: those on a scheduler."""
        from kvscope_events.observers.sglang.plugin import switches

        self.seen: Counter[str] = Counter()
        self.problems: list[str] = []
        self._load, self._look, self._wrappers = load, look, wrappers
        self._switch = switches[-1]
        self._chance = random.Random(3)
        self._left = 5  # passes until the next order
        self._on = True

    def receive(self, scheduler: Any) -> list[Any]:
        """Called at the begin of each pass, where the scheduler reads its socket."""
        observer = self._switch.observer
        if observer.live and not observer.returning:
            self._compare(scheduler, observer)
        elif observer.rests and not observer.returning:
            self.seen["off"] += 1
            self.seen["wrapped_while_off"] += self._wrappers(scheduler) > 0
            self.seen["standing_in"] += "take_events" in vars(scheduler.tree_cache)
            self._look()
        self._left -= bool(self._load.live)
        if self._left <= 0:
            self._order(scheduler)
        new: list[Any] = self._load.receive(scheduler)
        if scheduler.gracefully_exit and not self._on:
            scheduler.gracefully_exit = False
            self._order(scheduler)
        return new

    def reply(self, output: Any) -> None:
        self._load.reply(output)

    def _compare(self, scheduler: Any, observer: Any) -> None:
        from kvscope_events.observers.sglang.present import references, running

        pages = observer.steps.pages
        if self._load.sent and not observer.events:
            self.seen["on"] += 1
            self._look()
        if pages.has_host_tier:
            return
        expected = references(running(scheduler), pages.page)
        wrong = not pages.knows_references or pages.references != expected
        if wrong and len(self.problems) < MOST_PROBLEMS:
            self.problems.append(f"{pages.references} references for {expected}")

    def _order(self, scheduler: Any) -> None:
        self._on = not self._on
        self.seen["orders"] += 1
        self._left = self._chance.randrange(1, MOST_PASSES)
        give = partial(self._switch.order, self._on)
        if self._chance.random() < 0.5:
            self._answered(give())
        else:
            _during(scheduler.token_to_kv_pool_allocator, lambda: self._answered(give()))

    def _answered(self, answer: bytes) -> None:
        from kvscope_events.observers.switched import SwitchReply

        found = SwitchReply.decoded(answer)
        if len(self.problems) < MOST_PROBLEMS and (found.problem or found.state == "stopped"):
            self.problems.append(f"{found.state}: {found.problem}")


def _during(pool: Any, give: Callable[[], None]) -> None:
    """Give the order when the pool is next asked for its free tokens: inside a step."""
    original = pool.available_size

    def available_size() -> int:
        vars(pool).pop("available_size", None)
        give()
        return int(original())

    pool.available_size = available_size
