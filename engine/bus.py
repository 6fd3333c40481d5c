"""The in-process event bus: the step appends to a list, `flush` hands the batch to bounded queues.

It never blocks the step, takes no lock in it and never raises into it. A full queue drops its
oldest batch; the subscriber sees the gap in `seq`, counts it, asks for a snapshot and gets one with
the next flush.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from engine.events import Batch, EngineEvent, PoolSnapshot

DEFAULT_QUEUE_BATCHES = 4096
"""About four seconds at a thousand steps a second: longer than any pause of a fold or a scrape."""


class Bus(Protocol):
    """What the engine needs of a bus; `EventBus` and `NullBus` are the two there are."""

    @property
    def emit(self) -> Callable[[EngineEvent], None]:
        """Add an event to the current step. The callable stays valid for the bus's life."""
        ...

    def flush(self) -> None:
        """End the step."""
        ...


class Subscription:
    """One subscriber's bounded queue. One thread takes, the engine's puts."""

    def __init__(self, queue_batches: int) -> None:
        self._queue: deque[Batch] = deque(maxlen=queue_batches)
        self._next_seq: int | None = None
        self._ready = threading.Event()
        self.snapshot_wanted = False
        self.dropped = 0
        """Batches lost before the last one taken, because the queue was full."""

    def request_snapshot(self) -> None:
        """Ask for a PoolSnapshot in one of the next batches."""
        self.snapshot_wanted = True

    def wait(self, timeout: float) -> bool:
        """Wait until a batch may be there; True if so."""
        ready = self._ready.wait(timeout)
        self._ready.clear()
        return ready

    def take(self) -> Batch | None:
        """The oldest queued batch, or None; `dropped` then counts what was lost before it."""
        try:
            batch = self._queue.popleft()
        except IndexError:
            return None
        if self._next_seq is not None:
            self.dropped += batch.seq - self._next_seq
        self._next_seq = batch.seq + 1
        return batch

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
        self._snapshot: Callable[[], PoolSnapshot] | None = None

    @property
    def emit(self) -> Callable[[EngineEvent], None]:
        """Safe from any thread; what other threads emit travels with the step under way."""
        return self._emit

    def subscribe(self, queue_batches: int = DEFAULT_QUEUE_BATCHES) -> Subscription:
        """A new subscription; it sees every batch flushed from now on."""
        if queue_batches <= 0:
            raise ValueError(f"queue_batches must be positive, got {queue_batches}")
        subscription = Subscription(queue_batches)
        self._subscriptions = (*self._subscriptions, subscription)
        return subscription

    def provide_snapshot(self, snapshot: Callable[[], PoolSnapshot]) -> None:
        """Name the function, called by `flush`, that serves subscribers which lost batches."""
        self._snapshot = snapshot

    def flush(self) -> None:
        """End the step: every queue gets the batch. Does nothing when there is nothing to say."""
        events = self._events[:]
        del self._events[: len(events)]  # not clear(): another thread may have emitted since
        if self._snapshot is not None:
            wanted = [s for s in self._subscriptions if s.snapshot_wanted]
            if wanted:
                for subscription in wanted:
                    subscription.snapshot_wanted = False
                events.append(self._snapshot())  # the state after this batch: true for everyone
        if not events:
            return
        batch = Batch(self._seq, time.monotonic_ns(), events)
        self._seq += 1
        for subscription in self._subscriptions:
            subscription.put(batch)


class NullBus:
    """The bus when nobody listens: the same interface, no work."""

    @property
    def emit(self) -> Callable[[EngineEvent], None]:
        return _forget

    def flush(self) -> None:
        """Nothing was collected."""


def _forget(event: EngineEvent) -> None:
    pass
