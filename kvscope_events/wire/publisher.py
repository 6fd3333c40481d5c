"""Sends a bus's batches over ZMQ from a thread of its own; the engine's step pays the queue append.

The thread polls the queue 50 times a second, so the step never has to wake it. It never waits for
a reader: a slow reader loses messages, finds the gap and requests what the ring still holds, or a
snapshot. ZMQ drops messages for that reader alone and does not report it, so readers count.
"""

import errno
import logging
import os
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import zmq

from kvscope_events.bus import DEFAULT_QUEUE_BATCHES, EventBus
from kvscope_events.events import Batch, PoolSnapshot
from kvscope_events.stacks import Stacks
from kvscope_events.wire.endpoint import EndpointError, parse_endpoint
from kvscope_events.wire.frame import (
    HAS_STATE,
    HEADER_BYTES,
    ID_BYTES,
    MAX_MESSAGE_BYTES,
    REQUEST_BYTES,
    FrameKind,
    RequestKind,
    SubscriberRequest,
    answer_topic,
    encode_batch,
    flags_of,
    pack_header,
    read_request,
)
from kvscope_events.wire.socket_file import SocketFile

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.02
"""Pause between two polls of the queue by default: the most that it adds to a batch's age."""
HEARTBEAT_NS = 1_000_000_000
"""Longest silence of a stream; after five times as long a reader considers it down."""
SNAPSHOT_NS = 1_000_000_000
"""Shortest time between two snapshots, since the engine's step has to make them."""
STACKS_NS = 500_000_000
"""Shortest time between two answers with stacks, since reading them holds the interpreter."""
MESSAGE_BYTES = 256 << 10
"""Size at which a message or an answer ends: copying one holds the interpreter for some 50 µs."""
HIGH_WATER = 64
"""Messages queued for one reader, over a second's worth; the ring serves slower ones."""
HOPELESS_NS = 60_000_000_000
"""The same after a snapshot that could not be sent: the next one will hardly be smaller."""
REPLAY_BYTES = 32 << 20
"""The last half minute of a busy engine, at 1,000 steps a second of 1 KiB each."""
ENTRY_BYTES = 300
"""Memory of a message that is kept for replay, beside the message itself."""
ANSWERS_PER_TICK = 8
"""Replays sent in one tick to all readers together; the others ask again."""
REQUESTS_PER_TICK = 1000
"""Requests read in one tick; the rest of a flood waits in its own connection."""
FLUSH_SECONDS = 0.2
"""Time that `stop` may take to deliver what is queued."""


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
        tick_seconds: float = TICK_SECONDS,
    ) -> None:
        """tick_seconds: pause between two polls of the queue. Where the step's thread shares its
        interpreter and its cores with others, each poll may hold it up."""
        parsed = parse_endpoint(endpoint, allow_remote=allow_remote)
        self._file = SocketFile(parsed.path) if parsed.path is not None else None
        self._context = zmq.Context()
        try:
            self._socket = _bind(self._context, parsed.address, high_water, REQUEST_BYTES)
        except BaseException:
            self._context.destroy(linger=0)
            if self._file is not None:
                self._file.release()
            raise
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.session = os.urandom(ID_BYTES)
        self.batches_lost = 0
        """Batches that were never sent: dropped by the bus's queue, too large, or not encodable."""
        self.requests_ignored = 0
        """Messages of peers that were not a request, or more than one tick answers."""
        self.obey: Callable[[bool], bytes] | None = None
        """Takes an order to go on (True) or to stop, on the publisher's thread, and returns the
        answer at once; None: this producer takes none."""
        self._subscription = bus.subscribe(queue_batches)
        self._ring = Ring(replay_bytes)
        self._outbox = _Outbox(self.session, self._ring, self._send)
        self._reader_joined = False
        self._sent_ns = time.monotonic_ns()
        self._snapshot_due = False
        self._snapshot_ns = 0
        self._snapshot_pause_ns = SNAPSHOT_NS
        self._stacks_ns = 0
        self._pid = os.getpid()
        self._tick_seconds = tick_seconds
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def ring_bytes(self) -> int:
        """Memory of the batches kept for replay; at most `replay_bytes`."""
        return self._ring.bytes

    def start(self) -> None:
        """Begin to send; may be called once."""
        if self._thread is not None:
            raise RuntimeError("the publisher has been started before")
        self._thread = threading.Thread(target=self._run, name="kvscope-wire", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Send what is queued, for 0.2 s at most, and remove the socket file. May be repeated.

        In a forked child, which has no such thread, it does nothing.
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
        while not self._stopping.wait(self._tick_seconds):
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
        except Exception:  # it runs in a foreign server: log and go on
            logger.exception("the wire at %s failed in one round", self.address)

    def _publish(self) -> None:
        """Send all that is queued; after a loss also request a snapshot, since readers need one."""
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

    def _answer(self, request: SubscriberRequest) -> None:
        if request.kind == RequestKind.SNAPSHOT:
            self._snapshot_due = True
            return
        if request.kind == RequestKind.STACKS:
            self._answer_stacks(request)
            return
        if request.kind in (RequestKind.OFF, RequestKind.ON):
            payload = b"" if self.obey is None else self.obey(request.kind == RequestKind.ON)
            self._answer_with(request, FrameKind.SWITCHED, payload)
            return
        answer = self._ring.replay(request.seq, MESSAGE_BYTES)
        if not answer and request.seq < self._outbox.next_seq:
            self._snapshot_due = True
            answer = pack_header(FrameKind.GONE, 0, self.session, request.seq, 0)
        if answer:
            self._send(answer_topic(request.subscriber) + answer)

    def _answer_stacks(self, request: SubscriberRequest) -> None:
        now_ns = time.monotonic_ns()
        if now_ns - self._stacks_ns < STACKS_NS:
            self.requests_ignored += 1  # readers repeat it
            return
        self._stacks_ns = now_ns
        self._answer_with(request, FrameKind.STACKS, Stacks.now().encoded())

    def _answer_with(self, request: SubscriberRequest, kind: FrameKind, payload: bytes) -> None:
        header = pack_header(kind, 0, self.session, 0, len(payload))
        self._send(answer_topic(request.subscriber) + header + payload)

    def _send(self, message: bytes) -> None:
        self._socket.send(message, zmq.NOBLOCK)
        self._sent_ns = time.monotonic_ns()


class Sent(NamedTuple):
    """One message: the batches [first, end) without a gap."""

    first: int
    end: int
    has_state: bool
    message: bytes


class Ring:
    """The latest messages of a stream, kept for readers that missed some.

    Drops the oldest ones over `max_bytes`, and keeps no message that is larger. Sequence numbers
    grow, but not always by one.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._sent: deque[Sent] = deque()
        self.bytes = 0

    def append(self, sent: Sent) -> None:
        size = len(sent.message) + ENTRY_BYTES
        if size > self._max_bytes:
            return
        self._sent.append(sent)
        self.bytes += size
        while self.bytes > self._max_bytes:
            self.bytes -= len(self._sent.popleft().message) + ENTRY_BYTES

    def replay(self, seq: int, max_bytes: int) -> bytes:
        """Consecutive messages from the one that holds `seq` on: at least one, about `max_bytes`.

        Where `seq` is gone, they begin with the first later one that has the whole state; without
        one the list is empty.
        """
        sent = self._sent
        index = bisect_right(sent, seq, key=lambda entry: entry.end)
        if index < len(sent) and sent[index].first > seq:
            while index < len(sent) and not sent[index].has_state:
                index += 1
        messages: list[bytes] = []
        size = 0
        while index < len(sent) and (not messages or size + len(sent[index].message) <= max_bytes):
            messages.append(sent[index].message)
            size += len(messages[-1])
            index += 1
        return b"".join(messages)


class _Outbox:
    """Collects batches; sends and keeps them in the ring when a message is full, or at `flush`."""

    def __init__(self, session: bytes, ring: Ring, send: Callable[[bytes], None]) -> None:
        self._session = session
        self._ring = ring
        self._send = send
        self._parts: list[bytes] = []
        self._size = 0
        self._first = 0
        self._has_state = False
        self.next_seq = 0
        """The number that follows the last batch added."""

    def add(self, batch: Batch) -> bool:
        """Add a batch; False if it cannot be sent and leaves a gap in the sequence."""
        if batch.seq != self.next_seq:
            self.flush()
        try:
            flags, payload = flags_of(batch), encode_batch(batch)
        except Exception:  # whatever a producer put into an event must not end its publisher
            logger.exception("batch %d cannot be encoded and is left out", batch.seq)
            payload = None
        if payload is not None and HEADER_BYTES + len(payload) > MAX_MESSAGE_BYTES:
            logger.error(
                "batch %d has %d bytes, larger than a message may be, and is left out",
                batch.seq,
                len(payload),
            )
            payload = None
        if payload is None:
            self.flush()
            self.next_seq = batch.seq + 1
            return False
        if self._size + len(payload) > MESSAGE_BYTES:
            self.flush()
        if not self._parts:
            self._first = batch.seq
        header = pack_header(FrameKind.BATCH, flags, self._session, batch.seq, len(payload))
        self._parts += (header, payload)
        self._size += HEADER_BYTES + len(payload)
        self._has_state = self._has_state or bool(flags & HAS_STATE)
        self.next_seq = batch.seq + 1
        return True

    def flush(self) -> None:
        """Send what has been added."""
        if not self._parts:
            return
        message = b"".join(self._parts)
        self._ring.append(Sent(self._first, self.next_seq, self._has_state, message))
        self._parts, self._size, self._has_state = [], 0, False
        self._send(message)


def _bind(
    context: "zmq.Context[zmq.Socket[bytes]]", address: str, high_water: int, max_bytes: int
) -> "zmq.Socket[bytes]":
    """A publishing socket that reads requests of up to `max_bytes`; raises EndpointError."""
    publisher = context.socket(zmq.XPUB)
    publisher.setsockopt(zmq.LINGER, 0)
    publisher.setsockopt(zmq.SNDHWM, high_water)
    publisher.setsockopt(zmq.RCVHWM, high_water)
    publisher.setsockopt(zmq.MAXMSGSIZE, max_bytes)
    publisher.setsockopt(zmq.XPUB_VERBOSE, 1)  # reports every new reader, for its heartbeat
    publisher.setsockopt(zmq.IPV6, int("[" in address))
    try:
        publisher.bind(address)
    except zmq.ZMQError as error:
        if error.errno == errno.EADDRINUSE:
            raise EndpointError(
                address, "another process listens there", "stop it or use another endpoint"
            ) from error
        raise EndpointError(
            address, f"cannot be bound: {error.strerror}", "use another endpoint"
        ) from error
    return publisher
