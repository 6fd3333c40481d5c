"""Sends a bus's batches over ZMQ from a thread of its own; the engine's step pays the queue append.

The thread looks at the queue 50 times a second, so the step never wakes anybody. It never waits for
a reader: one that does not read loses messages, finds the gap and asks for what the ring still
holds, or for a snapshot. ZMQ drops for each reader alone and does not say so: readers count.
"""

import logging
import os
import threading
import time

import zmq

from kvscope_events.bus import DEFAULT_QUEUE_BATCHES, EventBus
from kvscope_events.events import PoolSnapshot
from kvscope_events.wire.endpoint import parse_endpoint
from kvscope_events.wire.frame import (
    ID_BYTES,
    REQUEST_BYTES,
    FrameKind,
    Request,
    RequestKind,
    answer_topic,
    pack_header,
    read_request,
)
from kvscope_events.wire.outbox import MESSAGE_BYTES, Outbox
from kvscope_events.wire.ring import Ring
from kvscope_events.wire.socket_file import SocketFile
from kvscope_events.wire.sockets import bind

_LOGGER = logging.getLogger(__name__)

TICK_SECONDS = 0.02
"""Pause between two looks at the queue: what the wire adds to a batch's age at most."""
HEARTBEAT_NS = 1_000_000_000
"""Longest silence of a stream; a reader takes five of them for the end."""
SNAPSHOT_NS = 1_000_000_000
"""Shortest time between two snapshots: the engine's step makes them, whoever asks."""
HIGH_WATER = 64
"""Messages queued for one reader, over a second: the ring serves who falls further behind."""
HOPELESS_NS = 60_000_000_000
"""The same after a snapshot that could not be sent: the next one will hardly be smaller."""
REPLAY_BYTES = 32 << 20
"""Half a minute of a busy engine: 1,000 steps a second of 1 KiB each."""
ANSWERS_PER_TICK = 8
"""Replays sent in one tick to all readers together; who gets none asks again."""
REQUESTS_PER_TICK = 1000
"""Requests read in one tick; a flood waits in its own connection."""
FLUSH_SECONDS = 0.2
"""How long `stop` may take to deliver what is queued."""


class WirePublisher:
    """Publishes `bus` on `endpoint` from `start` to `stop`.

    Construction binds and raises EndpointError; what the bus flushes from then on is published.
    `address` is the endpoint with the port that was chosen if it asked for port 0.
    """

    def __init__(
        self,
        bus: EventBus,
        endpoint: str,
        *,
        replay_bytes: int = REPLAY_BYTES,
        queue_batches: int = DEFAULT_QUEUE_BATCHES,
        high_water: int = HIGH_WATER,
        allow_remote: bool = False,
    ) -> None:
        parsed = parse_endpoint(endpoint, allow_remote=allow_remote)
        self._file = SocketFile(parsed.path) if parsed.path is not None else None
        self._context = zmq.Context()
        try:
            self._socket = bind(self._context, parsed.address, high_water, REQUEST_BYTES)
        except BaseException:
            self._context.destroy(linger=0)
            if self._file is not None:
                self._file.release()
            raise
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.session = os.urandom(ID_BYTES)
        self.batches_lost = 0
        """Batches that never went out: dropped by the bus's queue, too large, or not encodable."""
        self.requests_ignored = 0
        """Messages of peers that were no request, or more than one tick answers."""
        self._subscription = bus.subscribe(queue_batches)
        self._ring = Ring(replay_bytes)
        self._outbox = Outbox(self.session, self._ring, self._send)
        self._reader_joined = False
        self._sent_ns = time.monotonic_ns()
        self._snapshot_due = False
        self._snapshot_ns = 0
        self._snapshot_pause_ns = SNAPSHOT_NS
        self._pid = os.getpid()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def ring_bytes(self) -> int:
        """Memory that the recent past takes; at most `replay_bytes`."""
        return self._ring.bytes

    def start(self) -> None:
        """Begin to send; once only."""
        if self._thread is not None:
            raise RuntimeError("the publisher has been started before")
        self._thread = threading.Thread(target=self._run, name="kvscope-wire", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Send what is queued, for 0.2 s at most, and remove the socket file. May be repeated.

        A forked child has no such thread: there it does nothing.
        """
        if self._pid != os.getpid() or self._socket.closed:
            return
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._socket.close(linger=int(FLUSH_SECONDS * 1000))
        self._context.term()
        if self._file is not None:
            self._file.release()

    def _run(self) -> None:
        while not self._stopping.wait(TICK_SECONDS):
            self._tick()
        self._tick()

    def _tick(self) -> None:
        try:
            self._publish()
            self._serve()
            now_ns = time.monotonic_ns()
            if self._snapshot_due and now_ns - self._snapshot_ns > self._snapshot_pause_ns:
                self._snapshot_due, self._snapshot_ns = False, now_ns
                self._subscription.request_snapshot()
            if self._reader_joined or now_ns - self._sent_ns > HEARTBEAT_NS:
                self._reader_joined = False
                seq = self._outbox.next_seq
                self._send(pack_header(FrameKind.HEARTBEAT, 0, self.session, seq, 0))
        except Exception:  # a thread in somebody's server: it goes on, and says so each time
            _LOGGER.exception("the wire at %s failed in one round", self.address)

    def _publish(self) -> None:
        """All that is queued now; after a loss the state follows, for readers cannot have it."""
        for _ in range(self._subscription.queued):
            taken = self._subscription.take()
            if taken is None:
                break
            batch, lost = taken
            joined_late = self._outbox.next_seq == 0 and batch.seq > 0
            sent = self._outbox.add(batch)
            if not sent:
                lost += 1
            unusual = not sent or self._snapshot_pause_ns != SNAPSHOT_NS
            if unusual and PoolSnapshot in map(type, batch.events):
                self._snapshot_ns = time.monotonic_ns()
                self._snapshot_pause_ns = SNAPSHOT_NS if sent else HOPELESS_NS
            self.batches_lost += lost
            self._snapshot_due = self._snapshot_due or joined_late or lost > 0
        self._outbox.flush()

    def _serve(self) -> None:
        answered = 0
        for _ in range(REQUESTS_PER_TICK):
            # Asked first, since an exception in each idle tick would cost more than the tick.
            if not int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
                return
            message = self._socket.recv(zmq.NOBLOCK)
            if message[:1] in (b"\x00", b"\x01"):  # ZMQ's own: a reader left or came
                self._reader_joined = self._reader_joined or message[:1] == b"\x01"
                continue
            request = read_request(message)
            if request is None or request.session != self.session or answered == ANSWERS_PER_TICK:
                self.requests_ignored += 1
                continue
            answered += 1
            self._answer(request)

    def _answer(self, request: Request) -> None:
        if request.kind == RequestKind.SNAPSHOT:
            self._snapshot_due = True
            return
        answer = self._ring.replay(request.seq, MESSAGE_BYTES)
        if not answer and request.seq < self._outbox.next_seq:
            self._snapshot_due = True
            answer = pack_header(FrameKind.GONE, 0, self.session, request.seq, 0)
        if answer:
            self._send(answer_topic(request.subscriber) + answer)

    def _send(self, message: bytes) -> None:
        self._socket.send(message, zmq.NOBLOCK)
        self._sent_ns = time.monotonic_ns()
