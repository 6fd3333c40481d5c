"""One thread that folds what the source brings; a reader first drains, so it is never stale.

A fold that raises is given up: its families are absent from then on, the other folds go on.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kvscope_events.events import Batch
from exporter.clock import Clock
from exporter.fold import Fold
from exporter.sources import Source

_LOGGER = logging.getLogger(__name__)

COALESCE_SECONDS = 0.05
"""Pause after the first batch of a burst: the engine wakes our thread 20 times a second at most."""
IDLE_SECONDS = 0.25
"""Longest wait for a batch; also how long `stop` may take."""
CHUNK_BATCHES = 256
"""Batches that one fold applies before the next fold sees them, and before the clock is read."""


class _Worker:
    """A fold, its cost, and whether it still works."""

    def __init__(self, fold: Fold) -> None:
        self.fold = fold
        self.spent_ns = 0
        self.failed = False

    def apply(self, batches: list[Batch], after_gap: bool) -> None:
        if self.failed:
            return
        try:
            if after_gap:
                self.fold.on_gap()
            on_batch = self.fold.on_batch
            for batch in batches:
                on_batch(batch)
        except Exception:
            self.failed = True
            _LOGGER.exception("fold %s failed and is given up", self.fold.name)


class Pipeline:
    """Folds in the order given; all of them see every batch once."""

    def __init__(self, source: Source, folds: tuple[Fold, ...], clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._workers = [_Worker(fold) for fold in folds]
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
        """Time spent in each fold."""
        return {worker.fold.name: worker.spent_ns / 1e9 for worker in self._workers}

    @property
    def errors(self) -> dict[str, int]:
        """1 for each fold that was given up, 0 for the others."""
        return {worker.fold.name: int(worker.failed) for worker in self._workers}

    def start(self) -> None:
        """Begin to fold; once only."""
        if self._thread is not None:
            raise RuntimeError("the pipeline has been started before")
        self._thread = threading.Thread(target=self._run, name="kvscope-fold", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Fold what is queued and end the thread; what was folded can still be read."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self.drain()

    def drain(self) -> None:
        """Fold everything that was sent before the call."""
        with self._lock:
            self._drain()

    @contextmanager
    def settled(self) -> Iterator[None]:
        """Drain, and hold the folds still while the caller reads them."""
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
        batch = source.take()
        self.lag_seconds = 0.0 if batch is None else max(0, began_ns - batch.time_ns) / 1e9
        chunk: list[Batch] = []
        after_gap = False
        while batch is not None:
            if source.lost:
                self._fold(chunk, after_gap)
                chunk, after_gap = [], True
            chunk.append(batch)
            if len(chunk) == CHUNK_BATCHES:
                self._fold(chunk, after_gap)
                chunk, after_gap = [], False
            if batch.time_ns > began_ns:  # an engine faster than we are must not hold us for ever
                break
            batch = source.take()
        self._fold(chunk, after_gap)

    def _fold(self, chunk: list[Batch], after_gap: bool) -> None:
        if not chunk:
            return
        now_ns = self._clock.monotonic_ns
        before = now_ns()
        for worker in self._workers:
            worker.apply(chunk, after_gap)
            after = now_ns()
            worker.spent_ns += after - before
            before = after
