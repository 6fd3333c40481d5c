"""The stream of a server's process that reports what its scheduler does not: a worker, or a rank.

The server's threads only note things; a thread of its own sends them. A fault ends the stream with
one line, and the server continues.
"""

import atexit
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from kvscope_events.bus import EventBus
from kvscope_events.events import EngineEvent, Hello, ObserverStopped
from kvscope_events.limits import label_of
from kvscope_events.observers.log import warn
from kvscope_events.observers.start import Start
from kvscope_events.vocabulary import StartPhase
from kvscope_events.wire.publisher import WirePublisher

SAMPLE_SECONDS = 1.0
REPLAY_BYTES = 256 << 10
"""Some ten minutes of samples; a reader that comes later gets the current state."""
QUEUE_BATCHES = 64
TICK_SECONDS = 0.5


class WorkerStream(ABC):
    """A thread, a publisher, and the start of the process."""

    software: str
    """The server's name in a sentence."""
    _hello: Hello

    def __init__(self, endpoint: str, loader: str) -> None:
        """loader: module of the server's loader. Binds the endpoint; raises EndpointError."""
        self._start = Start(loader)
        self._pid = os.getpid()
        self._bus = EventBus()
        self._publisher = WirePublisher(
            self._bus,
            endpoint,
            replay_bytes=REPLAY_BYTES,
            queue_batches=QUEUE_BATCHES,
            tick_seconds=TICK_SECONDS,
        )
        self._bus.provide_snapshot(self._state)
        self._news = threading.Event()
        self._stopping = False
        self._reason: str | None = None
        self._thread = threading.Thread(target=self._run, name="kvscope-worker", daemon=True)

    @property
    def abandoned(self) -> bool:
        """Whether that which it observes is gone."""
        return False

    @property
    def session(self) -> str:
        return self._publisher.session.hex()

    @abstractmethod
    def _state(self) -> list[EngineEvent]:
        """The Hello, and the events that must follow it."""

    @abstractmethod
    def _each_second(self) -> list[EngineEvent]:
        """Events of this moment."""

    @abstractmethod
    def _let_go(self) -> None:
        """Put back all that was replaced. Never raises."""

    def stop(self) -> None:
        """End the thread, then the publisher. A forked child leaves both alone."""
        if self._pid != os.getpid():
            return
        self._stopping = True
        self._news.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(SAMPLE_SECONDS)
        self._publisher.stop()

    def _open(self) -> None:
        """Publish the state. If this raises, the caller must stop the stream."""
        self._report_state()
        self._publisher.start()
        self._thread.start()
        atexit.register(self.stop)

    def _begin_phase(self, phase: StartPhase) -> None:
        self._start.begin(phase)
        self._report_start()

    def _report_start(self) -> None:
        self._bus.emit(self._start.event())
        self._news.set()

    def _report_state(self) -> None:
        for event in self._state():
            self._bus.emit(event)
        self._news.set()

    def _guarded(self, when: str, note: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Call it, unless this observer has ended, or this is a fork; never raises."""
        if self._reason is None and self._pid == os.getpid():
            try:
                note(*args, **kwargs)
            except Exception as error:
                self._fail(f"{when}: {error!r}")

    def _run(self) -> None:
        try:
            while not self._stopping and not self.abandoned and self._reason is None:
                for event in self._each_second():
                    self._bus.emit(event)
                self._bus.flush()
                self._news.wait(SAMPLE_SECONDS)
                self._news.clear()
        except Exception as error:
            self._fail(repr(error))
        if self._reason is not None:
            self._bus.emit(ObserverStopped(label_of(self._reason)))
            self._bus.flush()
        if not self._stopping:  # this thread is never joined
            self._publisher.stop()
            atexit.unregister(self.stop)

    def _fail(self, reason: str) -> None:
        """Switch off: restore the originals, log one line, let the thread say goodbye."""
        self._reason = reason
        self._let_go()
        self._start.loaded()
        warn(f"this worker is no longer observed: {reason}; {self.software} runs on")
        self._news.set()
