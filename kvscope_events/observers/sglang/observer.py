"""The observer of one scheduler: compares counts with SGLang's own, sends batches, and ends.

Everything but the idle thread runs on the scheduler's only thread. An exception that reaches its
loop would end the server, so nothing of ours raises there, and `off` does not either. One that was
switched off by order has a successor, which goes on with the stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from kvscope_events.events import EngineEvent, Hello, PoolCounted, PoolCreated, TierCreated
from kvscope_events.observers.ending import BY_ORDER, last_words, stopped
from kvscope_events.observers.idle import IdleThread
from kvscope_events.observers.log import say, warn
from kvscope_events.observers.outlet import Outlet
from kvscope_events.observers.sglang.content import Content
from kvscope_events.observers.sglang.hooks import methods
from kvscope_events.observers.sglang.introduction import counted_of
from kvscope_events.observers.sglang.patching import Arguments, Keywords, Patches
from kvscope_events.observers.sglang.present import go_on, results_in_flight
from kvscope_events.observers.sglang.steps import Steps

PROBATION_NS = 60_000_000_000
"""A second difference within this time ends the observer: this SGLang works in an unknown way."""
RUNS_ON = "SGLang runs on, unobserved."


class Observer:
    """Watches `scheduler`, its tree and its pool."""

    def __init__(
        self,
        scheduler: Any,
        batch: type,
        created: PoolCreated,
        hello: Hello,
        outlet: Outlet,
        content: Content | None,
        tier: TierCreated | None,
    ) -> None:
        self.live = True
        self.off_wanted = False
        """Set by another thread: rest before the next step."""
        self.rests = False
        """Whether it was switched off by order."""
        self.returning = False
        """Whether it has yet to go on where the one before it rests."""
        self.hello = hello
        self.created = created
        self.outlet = outlet
        self.content = content
        self.tier = tier
        self.events: list[EngineEvent] = []
        self.steps = Steps(scheduler, self.events, hello.server_version, names=content is not None)
        self.patches = Patches(self.fail)
        self.differences = 0
        self.version = 0  # grows with each batch
        self._scheduler = scheduler
        self._batch = batch
        self._methods = methods(
            *(scheduler, batch, self.steps), self.pass_begins, self.step_completed, self.idle
        )
        self._difference_ns: int | None = None
        self._snapshot_owed = self._dirty = False
        self._unseen_steps = 0  # launched before it came, and still to complete
        self._ended: list[EngineEvent] = []
        self._before = self.steps  # of the observer that it succeeds

    def start(self, idle: IdleThread) -> None:
        """Replace the methods, and report our identity and the pool."""
        try:
            self._attach()
            self.outlet.start(self.state_for_readers)
            self.outlet.send(self._introduction(self.created))
            idle.start()
        except BaseException:
            self.live = False
            self._detach()
            raise

    def successor(self) -> Observer:
        """The one that goes on after this one, which rests: it waits for `begin`."""
        observer = Observer(
            *(self._scheduler, self._batch, self.created, self.hello, self.outlet),
            *(self.content, self.tier),
        )
        observer.returning = True
        observer.differences, observer.version = self.differences, self.version
        observer._difference_ns, observer._ended = self._difference_ns, self._ended
        observer._before = self.steps
        return observer

    # On the scheduler's thread.

    def begin(self) -> None:
        """Go on, between two passes of the scheduler's loop. Never raises."""
        try:
            go_on(self.steps, self._before)
            self._unseen_steps = len(results_in_flight(self._scheduler))
            self.steps.admission.stops.extend([None] * self._unseen_steps)
            self._attach()
            self.outlet.provide(self.state_for_readers)
            say(f"on: observing engine {self.hello.engine} again")
            self._snapshot_owed = True
            self.flush()
            if self.content is not None:
                self.content.drain(self.events)
                self.flush()
        except Exception as error:
            self.fail(error, "the return")
        self.returning = False

    def pass_begins(self, args: Arguments, kwargs: Keywords) -> None:
        """Between two passes; called over and over while nothing runs: must cost nothing."""
        if self.off_wanted:
            self.rest()
        else:
            self.steps.begins()

    def step_completed(self, note: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
        """After the result of a batch: the only moment at which SGLang's counts are up to date."""
        self._settle()
        completed = self.steps.completed(args)
        if not self._unseen_steps:
            self.events.append(completed)
        self._unseen_steps = max(0, self._unseen_steps - 1)
        self._dirty = True
        self.flush()

    def idle(self, note: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
        """Called over and over while nothing runs: must cost nothing where nothing happened."""
        if not (self._dirty or self.events):
            return
        self._dirty = False
        self.steps.cohort.forget()  # it holds the last batch, which SGLang has let go of
        self._settle()
        self.flush()

    def _settle(self) -> None:
        """Report what no hook does, and compare."""
        steps, pages = self.steps, self.steps.pages
        if pages.by_node:
            pages.settle_locks()
        steps.forget_waiting()
        # Tiers are written to at any time, elsewhere names follow our hooks.
        if self.content is not None and (pages.content_changed or pages.has_host_tier):
            pages.content_changed = False
            self.content.drain(self.events)
        self._compare()

    def flush(self) -> None:
        """Send the events of this step; never waits."""
        events = self.events.copy()
        self.events.clear()  # the hooks keep this very list
        if self._snapshot_owed:
            self._snapshot_owed = False
            events += self._introduction(self._counted())
        self.version += 1
        self.outlet.send(events)

    def _compare(self) -> None:
        """The self-check, O(1): a difference costs a snapshot, a second one within a minute ends
        the observer."""
        pages = self.steps.pages
        counted = (pages.free, pages.evictable, pages.protected)
        theirs = pages.of_sglang()
        if counted == theirs:
            return
        now_ns = time.monotonic_ns()
        last_ns, self._difference_ns = self._difference_ns, now_ns
        self.differences += 1
        text = f"counted {counted} free, evictable and protected pages, SGLang has {theirs}"
        if last_ns is not None and now_ns - last_ns < PROBATION_NS:
            self.off(f"this SGLang is unlike known versions: {text}, twice within a minute")
            return
        warn(f"{text}; continuing from SGLang's own counts")
        pages.recount()
        self._snapshot_owed = True

    # Snapshots.

    def state_for_readers(self) -> list[EngineEvent]:
        """Called by the outlet: the state after everything sent, or nothing while they differ."""
        if not self.live:
            return self._ended
        if self.events or self.outlet.in_part:
            self._snapshot_owed = True
            return []
        return self._introduction(self._counted())

    def _introduction(self, pool: PoolCreated | PoolCounted) -> list[EngineEvent]:
        told: list[EngineEvent] = [self.hello, pool]
        if self.tier is not None:
            empty = isinstance(pool, PoolCreated)
            told.append(msgspec.structs.replace(self.tier, empty=empty))
        return told

    def _counted(self) -> PoolCounted:
        return counted_of(self.created, self.steps.pages, self.steps.largest_step)

    # The end.

    def fail(self, error: BaseException, where: str) -> None:
        """Switch off because of our own defect, and report it."""
        self.off(f"{type(error).__name__} in {where}: {error}")

    def off(self, reason: str) -> None:
        """Stop observing, restore SGLang's methods, and report why. Never raises."""
        if self.live:
            self._stop(reason, lambda: warn(f"off: {reason}. {RUNS_ON}"))

    def rest(self) -> None:
        """The same by order, between two passes of the scheduler's loop."""
        if self.live:
            self._stop(BY_ORDER, lambda: say(f"off: {BY_ORDER}. {RUNS_ON}"), rests=True)

    def _stop(self, reason: str, report: Callable[[], None], *, rests: bool = False) -> None:
        self.patches.live = False
        for step in (self._detach, self.steps.forget):
            try:
                step()
            except Exception as error:
                last_words(error)
        self.rests, self.live = rests, False  # an order to go on may come by now
        try:
            report()
            self._ended = stopped(self.hello, reason)
            self.outlet.send([*self.events, self._ended[-1]])
        except Exception as error:  # nothing of ours may reach the scheduler
            last_words(error)
        finally:
            self.events.clear()

    def close(self) -> None:
        """Another scheduler begins in this process: send what is left and remove the socket."""
        self.live = False
        self._detach()
        self.outlet.stop()

    def _attach(self) -> None:
        self.patches.apply(self._methods)
        if self.content is not None:
            self.content.attach(self.events, self.fail)

    def _detach(self) -> None:
        """Put SGLang's own methods back, all that can be."""
        try:
            self.patches.restore()
        finally:
            if self.content is not None:
                self.content.detach()
