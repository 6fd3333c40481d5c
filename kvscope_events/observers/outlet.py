"""Hands batches to the wire: the engine's thread after each step, a second one while it idles.

The engine's thread never waits: while the other one holds the outlet, batches stay in a queue and
leave with the next one.
"""

import threading
from collections import deque
from collections.abc import Callable

from kvscope_events.bus import EventBus, Finish
from kvscope_events.events import EngineEvent
from kvscope_events.wire.publisher import WirePublisher

REPLAY_BYTES = 6 << 20
"""A busy step is about 1 KiB on the wire. A reader that lost more gets a snapshot."""
QUEUE_BATCHES = 1024
"""Over a second of the shortest steps."""
TICK_SECONDS = 0.1
"""Pause of the publisher's thread: vLLM's step waits while it has the interpreter, and longer where
all cores are busy."""
BATCH_EVENTS = 20_000
"""Larger steps are sent in parts, to stay within memory and the wire's limits."""
MAX_UNSENT = 10_000
"""Batches that wait for the other thread: only a defect of ours can hold it that long."""


class Outlet:
    """Publishes on `endpoint`; construction raises EndpointError."""

    def __init__(self, endpoint: str) -> None:
        self.bus = EventBus()
        self._publisher = WirePublisher(
            self.bus,
            endpoint,
            replay_bytes=REPLAY_BYTES,
            queue_batches=QUEUE_BATCHES,
            tick_seconds=TICK_SECONDS,
        )
        self.address = self._publisher.address
        self.session = self._publisher.session.hex()
        self.in_part = False
        """Whether more events of the same state are still to be sent: no snapshot fits here."""
        self._busy = threading.Lock()
        self._unsent: deque[list[EngineEvent]] = deque()

    def start(
        self, snapshot: Callable[[], list[EngineEvent]], finish: Finish | None = None
    ) -> None:
        """Begin to publish; `snapshot` is called while a batch is sent.

        finish: makes events of what was sent, on the publisher's thread; None: they are events.
        """
        self.provide(snapshot)
        if finish is not None:
            self.bus.provide_finish(finish)
        self._publisher.start()

    def provide(self, snapshot: Callable[[], list[EngineEvent]]) -> None:
        """From now on `snapshot` is called."""
        self.bus.provide_snapshot(snapshot)

    def obey(self, order: Callable[[bool], bytes]) -> None:
        """Have orders of readers to go on (True) or to stop answered, on the publisher's thread."""
        self._publisher.obey = order

    def send(self, events: list[EngineEvent]) -> None:
        """Send a batch, or leave it for the next one if sending would mean waiting."""
        if not self._busy.acquire(blocking=False):
            if len(self._unsent) >= MAX_UNSENT:
                raise RuntimeError("batches cannot be sent")
            self._unsent.append(events)
            return
        try:
            if self._unsent:
                events = self._older() + events
            self._send(events)
        finally:
            self._busy.release()

    def serve(self, may: Callable[[], bool]) -> None:
        """Called while the engine idles: send what is queued, and a snapshot if one is requested.

        `may` returns whether the engine is still idle.
        """
        if not self._busy.acquire(blocking=False):
            return
        try:
            if self._unsent:
                self._send(self._older())
            elif may():
                self.bus.send([])
        finally:
            self._busy.release()

    def tell(self, state: Callable[[], list[EngineEvent]]) -> None:
        """Called while the engine idles: send this state, if there is one, after what is queued."""
        if not self._busy.acquire(blocking=False):
            return
        try:
            if self._unsent:
                self._send(self._older())
            if events := state():
                self._send(events)
        finally:
            self._busy.release()

    def stop(self) -> None:
        """Send what is queued and remove the socket."""
        self._publisher.stop()

    def _older(self) -> list[EngineEvent]:
        events: list[EngineEvent] = []
        while self._unsent:
            events += self._unsent.popleft()
        return events

    def _send(self, events: list[EngineEvent]) -> None:
        if len(events) > BATCH_EVENTS:
            self.in_part = True
            while len(events) > BATCH_EVENTS:
                self.bus.send(events[:BATCH_EVENTS])
                events = events[BATCH_EVENTS:]
            self.in_part = False
        self.bus.send(events)
