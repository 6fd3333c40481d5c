"""One thread that hands a source's batches to listeners; readers drain first, so no state is stale.

A listener that raises is disabled: its families are absent from then on, and the others continue.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

from kvscope_events.bus import Subscription
from kvscope_events.events import Batch, ObserverStopped, PoolCounted, PoolCreated, PoolSnapshot
from kvscope_exporter.clock import Clock
from kvscope_exporter.sources.attachments import SourceKind
from kvscope_exporter.sources.listener import Composite, Listener, Part
from kvscope_exporter.sources.source import Source

logger = logging.getLogger(__name__)

COALESCE_SECONDS = 0.05
"""Pause after the first batch of a burst: the engine wakes our thread at most 20 times a second."""
IDLE_SECONDS = 5.0
"""Longest wait for a batch; `end` cuts it short."""
CHUNK_BATCHES = 256
"""Batches that one listener takes before the next one sees them, and before the clock is read."""
MAX_PENDING = 1 << 17
"""Maximum number of requests and sequences that one listener remembers, in several entries of some
100 bytes each: bounds the memory for a producer that never ends what it begins."""
ASK_EVENTS = 1024
"""Events after which listeners are asked again how much they remember: asking all of them costs as
much as folding some ten events."""

LATE_NS = 10 * 10**9
"""A backlog older than this, read when a stream is joined, says nothing about the present."""
_DRIFT = 100
"""Two monotonic clocks differ by less than a hundredth, a pause of one of them aside."""

_NO_ERRORS: Mapping[str, int] = MappingProxyType({})


class _Worker:
    """A listener, and whether it still works."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.failed = False

    @property
    def parts(self) -> tuple[Part, ...]:
        """It and its parts."""
        own = self.listener.parts if isinstance(self.listener, Composite) else ()
        return (self.listener, *own)

    def has_failed(self, part: object) -> bool:
        """Whether this part of it does not work any more."""
        listener = self.listener
        if self.failed or part is listener:
            return self.failed and any(part is own for own in self.parts)
        return isinstance(listener, Composite) and listener.failed(part)

    def apply(self, batches: list[Batch], after_gap: bool, *, ask: bool) -> bool:
        """Hand it the batches; False if it raised. ask: whether it remembers too much."""
        try:
            if after_gap:
                self.listener.on_gap()
            on_batch = self.listener.on_batch
            for batch in batches:
                on_batch(batch)
            if ask and self.listener.num_pending > MAX_PENDING:
                logger.error(
                    "fold %s: over %d requests and sequences have begun and not ended: forgotten",
                    self.listener.name,
                    MAX_PENDING,
                )
                self.listener.on_gap()
        except Exception:
            self.failed = True
            logger.exception("fold %s failed and is given up", self.listener.name)
            return False
        return True


class _Transfer:
    """When the batches of one session were sent, on our clock, by those that came fastest."""

    def __init__(self) -> None:
        self._least_ns: int | None = None  # our clock less the producer's; unknown at first
        self._arrived_ns = 0

    def sent_ns(self, batch: Batch) -> tuple[int, bool]:
        """And whether it is the first that came in time: those before it were of a backlog."""
        arrived_ns, least_ns = batch.arrived_ns, self._least_ns
        difference_ns = arrived_ns - batch.time_ns
        if least_ns is None:
            least_ns = difference_ns
        is_first_in_time = difference_ns < least_ns - LATE_NS
        drift_ns = max(0, arrived_ns - self._arrived_ns) // _DRIFT
        self._least_ns = min(difference_ns, least_ns + drift_ns)
        self._arrived_ns = arrived_ns
        return batch.time_ns + self._least_ns, is_first_in_time


class Pipeline:
    """Listeners in the given order; each of them sees every batch once.

    `listeners` creates them: at first, and again whenever the session of the source changes, or a
    newer one was heard, so that no state of a former producer remains.
    """

    def __init__(
        self,
        source: Source,
        listeners: Callable[[], Sequence[Listener]],
        clock: Clock,
        after: Callable[[], None] = lambda: None,
        period: tuple[int, Callable[[int], None]] = (1 << 62, lambda end_ns: None),
        misdated: Callable[[], None] = lambda: None,
    ) -> None:
        """after: called whenever something may have been folded, while the folds are held; quick,
        and must not raise.

        period: its length, and what is called with its end once it is over and before a batch of a
        later one is folded, as quickly. A batch belongs to the period in which it was sent, as far
        as arrivals of others show when that was; one without a batch is left out.

        misdated: called when the periods so far turn out to be those of a backlog, which is older
        than they say.
        """
        self._source = source
        self._clock = clock
        self._make_listeners = listeners
        self._after = after
        self._period_ns, self._after_period = period
        self._period_ends_ns: int | None = None
        self._ended_ns = 0  # the end of the last period that is over
        self._misdated = misdated
        self._transfer = _Transfer()
        self._session: str | None = None
        self._stopped = False  # the producer has said that it observes nothing for now
        self._spent_ns: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._unasked_events = 0
        self._workers: list[_Worker] = []
        self._renew()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.lag_seconds = 0.0
        """Age of the oldest batch that the last drain found; 0 when it found none."""

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def spent_seconds(self) -> dict[str, float]:
        """Time spent in each listener, and in each of its parts as far as it was measured."""
        return {name: self._spent_ns[name] / 1e9 for name in self._names}

    @property
    def errors(self) -> dict[str, int]:
        """Failures of each listener and part: at most one in a session."""
        return {name: self._errors[name] for name in self._names}

    @property
    def _names(self) -> list[str]:
        return [part.name for worker in self._workers for part in worker.parts]

    def failed(self, listener: Part) -> bool:
        """Whether a listener of the present session has failed."""
        return any(worker.has_failed(listener) for worker in self._workers)

    def start(self) -> None:
        """Begin to fold; may be called once."""
        if self._thread is not None:
            raise RuntimeError("the pipeline has been started before")
        self._thread = threading.Thread(target=self._run, name="kvscope-fold", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Ask the thread to end, without waiting for it."""
        self._stopping.set()
        self._source.wake()

    def stop(self) -> None:
        """Fold what is queued and end the thread; what was folded can still be read."""
        self.end()
        if self._thread is not None:
            self._thread.join()
        self.drain()

    def drain(self) -> None:
        """Fold everything that was queued before the call."""
        with self._lock:
            self._drain()

    def add(self, listener: Listener) -> None:
        """Hand it all later batches of this session; called within `settled`."""
        self._workers = [*self._workers, _Worker(listener)]

    def remove(self, listener: Listener) -> None:
        """Hand it nothing more; called within `settled`."""
        self._workers = [worker for worker in self._workers if worker.listener is not listener]

    def renew(self) -> None:
        """Start over with new listeners, as for a new producer."""
        with self._lock:
            self._renew()

    @contextmanager
    def settled(self) -> Iterator[None]:
        """Drain, and hold the folds while the caller reads them."""
        with self._lock:
            self._drain()
            yield

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._source.wait(IDLE_SECONDS) and not self._stopping.wait(COALESCE_SECONDS):
                self.drain()

    def _drain(self) -> None:
        source = self._source
        began_ns = self._clock.monotonic_ns()
        self.lag_seconds = 0.0
        chunk: list[Batch] = []
        after_gap = False
        first = True
        ends_ns = self._period_ends_ns or 0
        while (taken := source.take()) is not None:
            batch, lost = taken
            if first:
                self.lag_seconds = max(0, began_ns - batch.arrived_ns) / 1e9
                first = False
            arrived_ns = batch.arrived_ns
            is_other = source.session != self._session
            if is_other:
                self._transfer = _Transfer()
            sent_ns, is_first_in_time = self._transfer.sent_ns(batch)
            if is_other or is_first_in_time or sent_ns >= ends_ns:
                self._fold(chunk, after_gap)
                chunk, after_gap = [], False
                if is_first_in_time:
                    self._misdated()
                    self._period_ends_ns = None
                ends_ns = self._begin_period(sent_ns)
            if is_other:
                if self._session is not None:
                    self._renew()
                self._session = source.session
            elif lost or self._stopped:
                self._fold(chunk, after_gap)
                chunk, after_gap = [], True
            chunk.append(batch)
            events = batch.events
            self._stopped = type(events[-1]) is ObserverStopped if events else False
            if len(chunk) == CHUNK_BATCHES:
                self._fold(chunk, after_gap)
                chunk, after_gap = [], False
            # An engine that is faster than we are must not keep us here forever.
            if arrived_ns > began_ns:
                break
        self._fold(chunk, after_gap)
        if self._session is not None and source.superseded:
            self._renew()
            self._session = None
        # Without this the last batches before a silence would seem to be of the present.
        if self._period_ends_ns is not None and began_ns >= self._period_ends_ns:
            self._end_period()
        self._after()

    def _begin_period(self, now_ns: int) -> int:
        """The folds are those of the end of the last period; returns the end of the present one."""
        self._end_period()
        begins_ns = max(now_ns, self._ended_ns)
        self._period_ends_ns = (begins_ns // self._period_ns + 1) * self._period_ns
        return self._period_ends_ns

    def _end_period(self) -> None:
        if self._period_ends_ns is not None:
            self._ended_ns, self._period_ends_ns = self._period_ends_ns, None
            self._after_period(self._ended_ns)

    def _fold(self, chunk: list[Batch], after_gap: bool) -> None:
        if not chunk:
            return
        self._unasked_events += sum([len(batch.events) for batch in chunk])
        ask = self._unasked_events >= ASK_EVENTS
        if ask:
            self._unasked_events = 0
        now_ns = self._clock.monotonic_ns
        before = now_ns()
        wants_snapshot = False
        for worker in self._workers:
            if worker.failed:
                continue
            listener = worker.listener
            name = listener.name
            if not worker.apply(chunk, after_gap, ask=ask):
                self._errors[name] += 1
            elif listener.wants_snapshot:
                wants_snapshot = True
            after = now_ns()
            spent_ns = after - before
            if isinstance(listener, Composite):
                of_parts, failures = listener.costs()
                self._errors.update(failures)
                self._spent_ns.update(of_parts)
                spent_ns = max(0, spent_ns - sum(of_parts.values()))
            self._spent_ns[name] += spent_ns
            before = after
        if wants_snapshot:
            self._source.request_snapshot()

    def _renew(self) -> None:
        self._workers = [_Worker(listener) for listener in self._make_listeners()]


class InProcessSource:
    """The source for an engine in this process: a subscription to its bus.

    It requests a snapshot at once, since the engine may already be running, and after every gap.
    """

    kind: SourceKind = "inprocess"
    endpoint = ""
    session = ""
    up = True
    superseded = False
    decode_errors = _NO_ERRORS
    """Empty: nothing is decoded here."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self.batches_dropped = 0
        self.gaps = 0
        self.state_known = False
        self.last_message_ns: int | None = None
        subscription.request_snapshot()

    def wait(self, timeout: float) -> bool:
        return self._subscription.wait(timeout)

    def wake(self) -> None:
        self._subscription.wake()

    def request_snapshot(self) -> None:
        self._subscription.request_snapshot()

    def take(self) -> tuple[Batch, int] | None:
        taken = self._subscription.take()
        if taken is None:
            return None
        batch, lost = taken
        if lost:
            self.batches_dropped += lost
            self.gaps += 1
            self.state_known = False
            self._subscription.request_snapshot()
        if not self.state_known:
            self.state_known = any(
                isinstance(event, PoolCreated | PoolSnapshot | PoolCounted)
                for event in batch.events
            )
        self.last_message_ns = batch.arrived_ns
        return taken

    def close(self) -> None:
        """Do nothing: the bus outlives its subscribers."""
