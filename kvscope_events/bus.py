"""The in-process event bus: the step appends to a list, `flush` hands the batch to bounded queues.

It never blocks the step, takes no lock in it and never raises into it. A full queue drops its
oldest batch; the subscriber sees the gap in `seq`, counts it and requests a snapshot, which comes
with the next flush.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from kvscope_events.events import Batch, EngineEvent

Finish = Callable[[list[Any]], list[EngineEvent]]
DEFAULT_QUEUE_BATCHES = 4096
"""About four seconds at a thousand steps a second: longer than any pause of a fold or a scrape."""


class Bus(Protocol):
    """The bus as the engine sees it: the interface of `EventBus` and `NullBus`."""

    @property
    def emit(self) -> Callable[[EngineEvent], None]:
        """Add an event to the current step. The callable stays valid for the bus's life."""
        ...

    def provide_snapshot(self, snapshot: Callable[[], list[EngineEvent]]) -> None:
        """Set the function that returns the state for subscribers that request it."""
        ...

    def flush(self) -> None:
        """End the step."""
        ...


class Subscription:
    """One subscriber's bounded queue: the engine's thread puts, one other thread takes."""

    def __init__(self, queue_batches: int, finish: Finish | None = None) -> None:
        self._queue: deque[Batch] = deque(maxlen=queue_batches)
        self.finish = finish
        self._next_seq: int | None = None
        self._ready = threading.Event()
        self.snapshot_wanted = False

    def request_snapshot(self) -> None:
        """Ask for a Hello and a PoolSnapshot in one of the next batches."""
        self.snapshot_wanted = True

    @property
    def queued(self) -> int:
        """The number of batches waiting to be taken."""
        return len(self._queue)

    def wait(self, timeout: float) -> bool:
        """Wait until a batch may be available; True if so."""
        ready = self._ready.wait(timeout)
        self._ready.clear()
        return ready

    def wake(self) -> None:
        """Interrupt a wait in progress."""
        self._ready.set()

    def take(self) -> tuple[Batch, int] | None:
        """The oldest queued batch and how many were lost just before it; None: the queue is empty.

        Nothing counts as lost before the first batch.
        """
        try:
            batch = self._queue.popleft()
        except IndexError:
            return None
        expected, self._next_seq = self._next_seq, batch.seq + 1
        # A dead engine's last flushes may come from several threads and repeat a number: no loss.
        lost = 0 if expected is None else max(0, batch.seq - expected)
        if self.finish is not None:
            batch = msgspec.structs.replace(batch, events=self.finish(batch.events))
        return batch, lost

    def put(self, batch: Batch) -> None:
        """Called by the bus."""
        self._queue.append(batch)
        if not self._ready.is_set():  # `wait` clears before its caller drains: nothing is missed
            self._ready.set()


class EventBus:
    """Collects one step's events and hands them to every subscription."""

    def __init__(self) -> None:
        self._events: list[EngineEvent] = []
        self._emit = self._events.append
        self._subscriptions: tuple[Subscription, ...] = ()
        self._seq = 0
        self._snapshot: Callable[[], list[EngineEvent]] | None = None
        self._finish: Finish | None = None

    @property
    def emit(self) -> Callable[[EngineEvent], None]:
        """Safe from any thread; events of other threads travel with the current step."""
        return self._emit

    def subscribe(self, queue_batches: int = DEFAULT_QUEUE_BATCHES) -> Subscription:
        """A new subscription; it sees every batch flushed from now on."""
        if queue_batches <= 0:
            raise ValueError(f"queue_batches must be positive, got {queue_batches}")
        subscription = Subscription(queue_batches, self._finish)
        self._subscriptions = (*self._subscriptions, subscription)
        return subscription

    def provide_snapshot(self, snapshot: Callable[[], list[EngineEvent]]) -> None:
        """Set the function, called by `flush`, that serves subscribers which lost batches.

        It returns a Hello, then a PoolSnapshot where there is a pool.
        """
        self._snapshot = snapshot

    def provide_finish(self, finish: Finish) -> None:
        """Set the function that makes events of what is sent, on the thread that takes a batch.

        Its result depends on nothing else: every subscriber calls it.
        """
        self._finish = finish
        for subscription in self._subscriptions:
            subscription.finish = finish

    def flush(self) -> None:
        """End the step: every queue gets the batch. Without events it does nothing."""
        events = self._events[:]
        del self._events[: len(events)]  # not clear(): another thread may have emitted since
        self.send(events)

    def send(self, events: list[EngineEvent]) -> None:
        """End a step whose events were collected by its caller; the list is the bus's from now on.

        Without events it only serves subscribers that request a snapshot.
        """
        if self._snapshot is not None:
            is_wanted = False
            for subscription in self._subscriptions:
                if subscription.snapshot_wanted:
                    subscription.snapshot_wanted = False
                    is_wanted = True
            if is_wanted:
                events += self._snapshot()  # the state after this batch, valid for every subscriber
        if not events:
            return
        now_ns = time.monotonic_ns()
        batch = Batch(self._seq, now_ns, events, time.time_ns(), now_ns)
        self._seq += 1
        for subscription in self._subscriptions:
            subscription.put(batch)


class NullBus:
    """The bus for an engine without observers: it discards every event."""

    @property
    def emit(self) -> Callable[[EngineEvent], None]:
        return _forget

    def provide_snapshot(self, snapshot: Callable[[], list[EngineEvent]]) -> None:
        """Do nothing: there are no subscribers."""

    def flush(self) -> None:
        """Do nothing: no event was kept."""


def _forget(event: EngineEvent) -> None:
    pass
