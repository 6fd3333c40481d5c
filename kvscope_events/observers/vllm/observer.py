"""The observer of one scheduler: what the hooks share, how batches leave, and how it ends.

Everything but `idle` runs on the engine's thread. `live` is tested first: once it is False, the
hooks of this observer do nothing. One that was switched off by order has a successor, which goes
on with the stream.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Literal

from kvscope_events.events import EngineEvent, Hello, PoolCreated
from kvscope_events.observers.ending import BY_ORDER, last_words, stopped
from kvscope_events.observers.log import say, warn
from kvscope_events.observers.outlet import Outlet
from kvscope_events.observers.vllm.admission import Admission, Stop
from kvscope_events.observers.vllm.facts import Names, finisher
from kvscope_events.observers.vllm.group_hits import GroupHits
from kvscope_events.observers.vllm.groups import BlockGroups
from kvscope_events.observers.vllm.offloading import Offloading, offloading_manager
from kvscope_events.observers.vllm.requests import Ending, Sequences
from kvscope_events.observers.vllm.sizing import lookup_group
from kvscope_events.observers.vllm.snapshot import Counts, State, read_state
from kvscope_events.observers.vllm.tier import tier_of
from kvscope_events.vocabulary import ReleaseCause

MAX_STEPS = 64
"""Steps scheduled and not yet completed; vLLM has as many as pipeline stages, or two."""
BUFFER_NAMES = 50_000
"""Names in the buffer at which a long step sends a part of its events."""

MAX_DEFERRED = 4096
"""Releases announced and not yet made; a server has one for each request that just ended."""

End = Literal["broken", "rests", "closed"]
Owner = tuple[int | None, ReleaseCause]
Started = tuple[Any, int, int, int, Stop]
"""A scheduler's output, when its step began, its prefill and its decode tokens, and the reason why
it admitted no more."""


class Observer:
    """Watches `scheduler`, its cache manager and its block pool."""

    def __init__(
        self, scheduler: Any, running: Any, created: PoolCreated, hello: Hello, outlet: Outlet
    ) -> None:
        self.live = True
        self.off_wanted = False
        """Set by another thread: rest after this step."""
        self.rests = False
        """Whether it was switched off by order."""
        self.waits = False
        """Whether it has yet to go on where the one before it rests."""
        self.joins = False
        """Whether steps may end that were scheduled before it came."""
        self.introduced = False
        """Whether readers already have its state, while it waits."""
        self.scheduler = scheduler
        self.manager = scheduler.kv_cache_manager
        self.pool = self.manager.block_pool
        self.queue = self.pool.free_block_queue
        # Bypasses the property, which takes longer than everything else done for a block.
        raw = "_block_hash" if hasattr(self.pool.null_block, "_block_hash") else "block_hash"
        self.hash_of = attrgetter(raw)
        self.hashes_of: Callable[[list[Any]], list[bytes | None]] = eval(
            f"lambda blocks: [block.{raw} for block in blocks]"
        )
        self.hash_checked = False
        """Whether the first hash has the form that names are cut from."""
        self.created = created
        self.hello = hello
        self.outlet = outlet
        self.block_size = created.block_size
        self.usable_blocks = created.num_blocks - created.reserved
        self.names = Names(len(created.groups), lookup_group(created.groups, self.block_size))
        self.caching = bool(self.manager.enable_caching)
        several = len(created.groups) > 1
        self.groups = BlockGroups(created.num_blocks) if several else None
        self.group_hits = GroupHits(self.manager) if several and self.caching else None
        coordinator = getattr(self.manager, "coordinator", None)
        self.names_partial_blocks = bool(getattr(coordinator, "enable_partial_hash_hits", False))
        """Whether a block may have a name before it is full, which its full name replaces."""
        self.foreign_blocks = hasattr(self.pool.null_block, "pool")
        """Whether blocks of other pools may occur, each with its pool."""
        self.tier = tier_of(getattr(scheduler, "connector", None))
        """The tier from which the scheduler's connector loads; None: no connector, or unknown."""
        manager = offloading_manager(scheduler)
        self.offloading = None if manager is None else Offloading(self, manager)
        """The host tier, where it is known."""
        self.running = running
        """vLLM's status of a request that runs."""
        self.reports_chunks = self.caching and len(created.groups) > 1
        self.token_budget = int(getattr(scheduler, "max_num_scheduled_tokens", 0))
        self.sequences = Sequences()
        self.admission = Admission(scheduler, running, self.sequences.find)
        self.counts = Counts()
        # State of the calls in progress.
        self.depth = 0  # of calls of the scheduler
        self.version = 0  # grows with each call of the scheduler
        self.request: Any = None  # allocate_slots is under way for it
        self.releasing: Owner | None = None
        self.resetting: bool | None = None
        self.schedule_ns = 0
        # Still to be reported.
        self.buffer: list[Any] = []  # events, and facts that become events
        self.buffered_names = 0
        self.steps: deque[Started] = deque(maxlen=MAX_STEPS)
        self.deferred: dict[tuple[int, ...], deque[Owner]] = {}
        self.endings: list[Ending] = []
        self.leaving: list[str] = []  # ids of ended requests to forget after this step
        self.largest_step = 0  # tokens, of the reported ones
        self.step_told_ns = 0
        self.slots_told_ns = 0
        self.slots_known = [group.kind for group in created.groups] == ["full_attention"]
        self.snapshot_owed = True
        self.in_doubt = False
        """Set by the idle thread, when the blocks differ from what was counted."""
        self.differences = 0
        self.difference_ns: int | None = None
        self._stopped: list[EngineEvent] = []
        self._on_end: Callable[[End], None] = _nothing

    @property
    def returning(self) -> bool:
        return self.waits and not self.introduced

    def start(self, on_end: Callable[[End], None]) -> None:
        """Begin: report our identity and the pool's state.

        `on_end` makes the wrappers forget this observer.
        """
        self._on_end = on_end
        self.outlet.start(self.state_for_readers, finisher(self.names))
        self.buffer += [self.hello, self.created]
        if self.offloading is not None:
            self.buffer.append(self.offloading.attach())
        self.flush()

    def flush(self) -> None:
        """Send the events of this step; never waits."""
        self.place_blocks()
        events, self.buffer = self.buffer, []
        self.buffered_names = 0
        if self.snapshot_owed:
            self.snapshot_owed = False
            events.append(self.hello)
            events += self._whole(self.read())
        self.outlet.send(events)
        if self.off_wanted and not self.depth:
            self.rest()

    def place_blocks(self) -> None:
        """Find the groups of the blocks that were handed out since; before any are given back."""
        if self.groups is not None and self.groups.has_unplaced:
            self.groups.place(self.manager)

    def read(self) -> State:
        """The pool's state now; counting continues from it."""
        state = read_state(self.pool, self.names, self.created.reserved)
        assert state is not None  # nothing changes while the engine's thread reads
        self.counts = state.counts
        return state

    def state_for_readers(self) -> list[EngineEvent]:
        """Called by the outlet: the state after everything sent, or nothing while they differ."""
        if not self.live or (self.waits and not self.introduced):
            return self._stopped
        if self.buffer or self.outlet.in_part:
            self.snapshot_owed = True
            return []
        version = self.version
        state = read_state(
            self.pool, self.names, self.created.reserved, lambda: self.version == version
        )
        if state is None or self.buffer:
            self.snapshot_owed = True
            return []
        return [self.hello, *self._whole(state)]

    def _whole(self, state: State) -> list[EngineEvent]:
        groups = None if self.groups is None else self.groups.of_block
        snapshot = state.event(self.created, self.largest_step, groups)
        return [snapshot] if self.offloading is None else [snapshot, self.offloading.again()]

    def will_free(self, blocks: list[int], owner: Owner) -> None:
        """These blocks will be freed in this order and in one call, which has no request."""
        deferred = self.deferred
        deferred.setdefault(tuple(blocks), deque(maxlen=MAX_DEFERRED)).append(owner)
        if len(deferred) > MAX_DEFERRED:  # freed in some other way: their owner is not reported
            del deferred[next(iter(deferred))]

    def fail(self, error: BaseException, where: str) -> None:
        """Switch off because of our own defect, and report it."""
        self.off(f"{type(error).__name__} in {where}: {error}")

    def off(self, reason: str) -> None:
        """Stop observing, restore vLLM's methods, and report why. Never raises."""
        if not self.live:
            return
        self.live = False
        try:
            self._on_end("broken")
            warn(f"off: {reason}. vLLM runs on, unobserved.")
            self._say_stopped(reason)
        except Exception as error:  # nothing of ours may reach the scheduler
            last_words(error)
        finally:
            self._forget()

    def close(self) -> None:
        """The scheduler ends: send what is left and remove the socket."""
        if not self.live:
            return
        self.flush()
        self.live = False
        self._on_end("closed")
        self.outlet.stop()
        self._forget()

    def rest(self) -> None:
        """Stop observing by order, with vLLM's own methods in place of ours. Never raises."""
        if not self.live:
            return
        self.rests = True  # first: it is "stopped" for a reader that finds only the other
        self.live = False
        try:
            self._on_end("rests")
            say(f"off: {BY_ORDER}. vLLM runs on, unobserved.")
            self._say_stopped(BY_ORDER)
        except Exception as error:  # as above
            last_words(error)
        finally:
            self._forget()

    def successor(self, scheduler: Any) -> Observer:
        """The one that goes on after this one, which rests; it waits for `begin`."""
        observer = Observer(scheduler, self.running, self.created, self.hello, self.outlet)
        observer.waits = observer.joins = True
        observer.sequences.number_from(self.sequences)
        observer.largest_step = self.largest_step
        observer._stopped, observer._on_end = self._stopped, self._on_end
        return observer

    def introduce(self, holds: Callable[[], bool]) -> None:
        """Send readers the state while the engine idles, before `begin`."""

        def state() -> list[EngineEvent]:
            found = read_state(self.pool, self.names, self.created.reserved, holds)
            self.introduced = found is not None
            return [] if found is None else [self.hello, *self._whole(found)]

        self.outlet.tell(state)

    def begin(self) -> None:
        """Go on, on the engine's thread and between two steps. Never raises.

        Sequences that are there already are not known: they came before this observer.
        """
        self.waits = False
        self.version += 1
        try:
            if self.offloading is not None:
                self.offloading.attach()
            if self.groups is not None:
                self.groups.find_all(self.pool.blocks, self.manager, self.scheduler.requests)
            say(f"on: observing engine {self.hello.engine} again")
            self.flush()
        except Exception as error:
            self.fail(error, "the return")

    def _say_stopped(self, reason: str) -> None:
        self._stopped = stopped(self.hello, reason)
        events, self.buffer = self.buffer, []
        self.outlet.send([*events, self._stopped[-1]])

    def _forget(self) -> None:
        """Drop the references to vLLM's objects."""
        if self.offloading is not None:
            self.offloading.detach()
            self.offloading = None
        self.scheduler = self.manager = self.pool = self.queue = self.request = None
        del self.admission
        self.steps.clear()


def _nothing(how: End) -> None:
    """The end of an observer that was never started."""


def now_ns() -> int:
    return time.monotonic_ns()
