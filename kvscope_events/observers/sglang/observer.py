"""The observer of one scheduler: compares counts with SGLang's own, sends batches, and ends.

Everything but the idle thread runs on the scheduler's only thread. An exception that reaches its
loop would end the server, so nothing of ours raises there, and `off` does not either.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import msgspec

from kvscope_events.events import (
    EngineEvent,
    Hello,
    ObserverStopped,
    PoolCounted,
    PoolCreated,
    TierCreated,
)
from kvscope_events.observers.log import warn
from kvscope_events.observers.outlet import Outlet
from kvscope_events.observers.sglang.content import Content, discard_names
from kvscope_events.observers.sglang.hooks import methods
from kvscope_events.observers.sglang.pages import Arguments, Keywords
from kvscope_events.observers.sglang.patching import Patches
from kvscope_events.observers.sglang.steps import Steps

PROBATION_NS = 60_000_000_000
"""A second difference within this time ends the observer: this SGLang works in an unknown way."""
IDLE_SECONDS = 0.25


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
        self.hello = hello
        self.created = created
        self.outlet = outlet
        self.content = content
        self.tier = tier
        self.events: list[EngineEvent] = []
        self.steps = Steps(scheduler, self.events, hello.server_version, names=content is not None)
        self.patches = Patches(self.fail)
        self.differences = 0
        self._scheduler = scheduler
        self._methods = methods(scheduler, batch, self.steps, self.step_completed, self.idle)
        self._difference_ns: int | None = None
        self._snapshot_owed = False
        self._dirty = False
        self._discard = False
        self._version = 0
        self._ended: list[EngineEvent] = []
        self._stopping = threading.Event()

    def start(self, *, discard: bool) -> None:
        """Replace the methods, and report our identity and the pool; discard: names must be dropped
        after the end."""
        self._discard = discard
        self.patches.apply(self._methods)
        try:
            if self.content is not None:
                self._scheduler.tree_cache.take_events = self.content_for_publisher
            self.outlet.start(self.state_for_readers)
            self.outlet.send(self._introduction(self.created))
            threading.Thread(target=self._serve_idle, name="kvscope-idle", daemon=True).start()
        except BaseException:
            self.live = False
            self.patches.restore()
            self._restore_events()
            raise

    # On the scheduler's thread.

    def step_completed(self, note: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
        """After the result of a batch: the only moment at which SGLang's counts are up to date."""
        self._settle()
        self.events.append(self.steps.completed(args))
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
        self._version += 1
        self.outlet.send(events)

    def content_for_publisher(self) -> list[Any]:
        """Stands for the tree's `take_events`; SGLang's own publisher gets every event."""
        content = self.content
        assert content is not None
        try:
            content.drain(self.events)
        except Exception as error:
            self.fail(error, "take_events")
        return content.for_publisher()

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
        pages, created = self.steps.pages, self.created
        return PoolCounted(
            created.num_blocks,
            created.block_size,
            created.bytes_per_block,
            created.reserved,
            pages.private,
            pages.protected,
            pages.evictable,
            pages.references if not self.differences else None,
            self.steps.largest_step,
            created.size_tokens,
            created.longest_sequences,
        )

    def _serve_idle(self) -> None:
        """On a thread of our own: SGLang may sleep while it has no request."""
        version = -1
        while not self._stopping.wait(IDLE_SECONDS):
            try:
                if not self.live:
                    self.outlet.serve(lambda: True)
                elif version == self._version:
                    self.outlet.serve(lambda: not self.events)
                version = self._version
            except Exception as error:  # it runs in a foreign server: report it and end
                warn(f"snapshots are sent only while the engine runs steps: {error!r}")
                return

    # The end.

    def fail(self, error: BaseException, where: str) -> None:
        """Switch off because of our own defect, and report it."""
        self.off(f"{type(error).__name__} in {where}: {error}")

    def off(self, reason: str) -> None:
        """Stop observing, restore SGLang's methods, and report why. Never raises."""
        if not self.live:
            return
        self.live = self.patches.live = False
        for step in (self.patches.restore, self._restore_events, self._discard_names):
            try:
                step()
            except Exception as error:
                print(f"kvscope: off: {error!r}", file=sys.stderr)
        try:
            warn(f"off: {reason}. SGLang runs on, unobserved.")
            stopped = ObserverStopped(reason[:400])
            tells = ["Hello", "ObserverStopped"]
            self._ended = [msgspec.structs.replace(self.hello, tells=tells), stopped]
            self.outlet.send([*self.events, stopped])
        except Exception as error:  # nothing of ours may reach the scheduler
            print(f"kvscope: off: {error!r}", file=sys.stderr)
        finally:
            self.events.clear()

    def close(self) -> None:
        """Another scheduler begins in this process: send what is left and remove the socket."""
        self.live = False
        self._stopping.set()
        self.patches.restore()
        self._restore_events()
        self._discard_names()
        self.outlet.stop()

    def _restore_events(self) -> None:
        tree = self._scheduler.tree_cache
        if vars(tree).get("take_events") == self.content_for_publisher:
            del tree.take_events

    def _discard_names(self) -> None:
        """Once, however often it ends: each call puts another wrapper on the scheduler."""
        if self._discard:
            discard_names(self._scheduler)
            self._discard = False
