"""One publisher's messages, read by a thread of its own into a queue that is bounded by bytes."""

import logging
import threading
import time
from collections import deque
from typing import NamedTuple

import zmq

from kvscope_events.wire.endpoint import EndpointError
from kvscope_exporter.clock import Clock
from kvscope_exporter.faults import Faults
from kvscope_exporter.sources.kv_events.decoder import ErrorKind
from kvscope_exporter.sources.kv_events.framing import read_answer, read_live
from kvscope_exporter.sources.kv_events.link import Link, LinkEvent
from kvscope_exporter.sources.kv_events.tracker import Delivery, Tracker

logger = logging.getLogger(__name__)

QUEUE_BYTES = 32 << 20
"""Memory for messages received and not yet taken; a single one of any size always fits."""
MESSAGES_A_ROUND = 256
"""Messages read before the connections are looked at again."""
STALE_NS = 3_000_000_000
"""Time within which our thread looks at its sockets, unless this process is stalled."""
UNHEARD_NS = 15_000_000_000
"""Time without a first connection after which the log says what may be wrong."""
_IDLE_SECONDS = 1.0
_BUSY_SECONDS = 0.05
_RETRY_SECONDS = 1.0
_ENTRY_BYTES = 300
_UNHEARD = {
    False: "nothing listens there. If the server is up, it connects to this address instead, as "
    "vLLM does where its endpoint has no `*`: write `bind: true` here, or `tcp://*:PORT` in the "
    "server's --kv-events-config",
    True: "no server has connected. If it is up, it listens itself, as vLLM does where its "
    "endpoint has a `*`: leave `bind` out here, and name the server's host",
}
"""By whether the reader binds."""
_PROBLEMS = {
    "malformed": "the peer is not a publisher",
    "too_large": "the peer broke off in mid-message, or sent a message over the size limit",
}


class Address(NamedTuple):
    """Address of one publisher, in ZMQ's form."""

    endpoint: str
    replay: str | None
    topic: str
    bind: bool


class Reader:
    """Reads from construction to `close`; construction raises EndpointError.

    `take` may be called by one thread at a time, `wait` and the properties by any thread.
    """

    def __init__(
        self, address: Address, clock: Clock, faults: Faults[ErrorKind], max_frame_bytes: int
    ) -> None:
        self.last_message_ns: int | None = None
        self.session_ns = clock.monotonic_ns()
        """When the present session was first heard from."""
        self.ready = threading.Event()
        """Set when there is something to take, or a new session."""
        self._address = address
        self._clock_ns = clock.monotonic_ns
        self._faults = faults
        self._max_frame_bytes = max_frame_bytes
        self._queue: deque[tuple[Delivery, int]] = deque()
        self._put_bytes = 0  # written only by our thread
        self._taken_bytes = 0  # written by the caller of `take`, so that neither needs a lock
        self._looked_ns = time.monotonic_ns()
        self._unheard_since_ns: int | None = self._looked_ns
        self._more_waits = False  # the sockets hold more than one round reads
        self._stopping = threading.Event()
        self._tracker = Tracker(self._put, replays=address.replay is not None)
        self._link = self._connect()
        self._thread = threading.Thread(target=self._run, name="kvscope-kv-events", daemon=True)
        self._thread.start()

    @property
    def num_peers(self) -> int:
        """Publishers that are connected."""
        return self._link.num_peers

    @property
    def session(self) -> int:
        """Grows when another process speaks; 0 before any."""
        return self._tracker.session

    @property
    def certain(self) -> bool:
        """Whether the queue holds, or has held, everything this publisher is known to have sent."""
        now_ns = time.monotonic_ns()
        if self._more_waits or now_ns - self._looked_ns > STALE_NS:
            return False
        return self._tracker.certain and not self._tracker.contested(now_ns)

    @property
    def gaps(self) -> int:
        """Times that messages were missing, whether they came later or not."""
        return self._tracker.gaps

    @property
    def lost(self) -> int:
        """Messages that never came."""
        return self._tracker.lost

    @property
    def queued_bytes(self) -> int:
        """Memory of the messages received but not yet taken."""
        return self._put_bytes - self._taken_bytes

    def take(self) -> tuple[Delivery, int] | None:
        """The next message and its arrival, or None when none is queued."""
        if not self._queue:
            return None
        taken = self._queue.popleft()
        self._taken_bytes += len(taken[0].payload) + _ENTRY_BYTES
        return taken

    def close(self) -> None:
        """End the thread and the connections; may be repeated."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._link.wake()
        self._thread.join()

    def _connect(self) -> Link:
        endpoint, replay, topic, bind = self._address
        return Link(endpoint, replay, topic, bind=bind, max_bytes=self._max_frame_bytes)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._listen(self._link)
            except zmq.ZMQError as error:  # not the peer's fault: this process is in trouble
                logger.error(
                    "%s: cannot be read now: %s; trying again", self._address.endpoint, error
                )
                self._tracker.on_disconnected()
                self._reconnect()
        self._link.close()

    def _reconnect(self) -> None:
        self._link.close()
        while not self._stopping.wait(_RETRY_SECONDS):
            try:
                self._link = self._connect()
            except EndpointError as error:
                logger.error("%s; trying again", error)
            else:
                return

    def _listen(self, link: Link) -> None:
        tracker = self._tracker
        while not self._stopping.is_set():
            link.poll(_BUSY_SECONDS if tracker.waits or link.is_ending else _IDLE_SECONDS)
            now_ns = time.monotonic_ns()
            session = tracker.session
            for event in link.events(now_ns):
                self._on_event(event, link)
            self._say_if_unheard(now_ns)
            more = True
            for _ in range(MESSAGES_A_ROUND):
                more = self._receive(link, now_ns)
                if not more:
                    break
            self._more_waits, self._looked_ns = more, now_ns
            if tracker.timed_out(now_ns):
                link.forget_answers()
            has_room = self.queued_bytes <= QUEUE_BYTES // 2
            wanted = tracker.request(now_ns, has_room=has_room)
            if wanted is not None:
                link.ask(wanted)
            if tracker.session != session:
                self.session_ns = self._clock_ns()
                self.ready.set()

    def _on_event(self, event: LinkEvent, link: Link) -> None:
        if event == "connected":
            self._unheard_since_ns = None
            self._tracker.on_connected()
        elif event == "disconnected":
            self._tracker.on_disconnected()
            link.forget_answers()
        else:
            self._faults.count(event, _PROBLEMS[event])

    def _say_if_unheard(self, now_ns: int) -> None:
        """Once: ZMQ has no error for two sides of which neither binds."""
        since_ns = self._unheard_since_ns
        if since_ns is not None and now_ns - since_ns >= UNHEARD_NS:
            self._unheard_since_ns = None
            logger.warning("%s: %s", self._address.endpoint, _UNHEARD[self._address.bind])

    def _receive(self, link: Link, now_ns: int) -> bool:
        """Take what is there from each socket; False if neither has a message."""
        frames = link.receive()
        answer = link.receive_answer()
        if frames is not None:
            message = read_live(frames)
            if message is None:
                self._faults.count("malformed", "not a message of a KV event stream")
            else:
                self.last_message_ns = self._clock_ns()
                self._tracker.on_live(message.seq, message.payload, now_ns)
        if answer is not None:
            message = read_answer(answer)
            if message is None:
                self._faults.count("malformed", "not a message of a replay")
            elif message.is_end:
                self._tracker.on_end(now_ns)
            else:
                self._tracker.on_answer(message.seq, message.payload, now_ns)
        return frames is not None or answer is not None

    def _put(self, delivery: Delivery) -> bool:
        size = len(delivery.payload) + _ENTRY_BYTES
        if self._queue and self.queued_bytes + size > QUEUE_BYTES:
            return False
        self._put_bytes += size
        self._queue.append((delivery, self._clock_ns()))
        self.ready.set()
        return True
