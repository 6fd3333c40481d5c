"""Sends a bus's batches to readers from a thread of its own; the step pays the queue append.

The thread polls the queue 50 times a second, so the step never has to wake it. It never waits for
a reader: a slow reader loses messages, finds the gap and requests what the ring still holds, or a
snapshot. What a reader loses is not reported to the others, so readers count.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable

from kvscope_events.bus import DEFAULT_QUEUE_BATCHES, EventBus
from kvscope_events.events import Batch, PoolSnapshot
from kvscope_events.stacks import Stacks
from kvscope_events.throttle import Throttle
from kvscope_events.wire.endpoint import EndpointError, parse_endpoint
from kvscope_events.wire.frame import (
    HAS_STATE,
    HEADER_BYTES,
    ID_BYTES,
    MAX_MESSAGE_BYTES,
    FrameKind,
    RequestKind,
    encode_batch,
    flags_of,
    pack_header,
)
from kvscope_events.wire.readers import Reader, Readers
from kvscope_events.wire.ring import Ring, SentMessage
from kvscope_events.wire.socket_file import SocketFile

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.02
"""Pause between two polls of the queue by default: the most that it adds to a batch's age."""
HEARTBEAT_NS = 1_000_000_000
"""Longest silence of a stream; after five times as long a reader considers it down."""
SNAPSHOT_NS = 1_000_000_000
"""Shortest time between two snapshots, since the engine's step has to make them."""
LOOK_NS = 5_000_000_000
"""Time between two looks whether the socket's file is still there."""
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
ANSWERS_PER_TICK = 8
"""Replays sent in one tick to all readers together; the others ask again."""
STOP_SECONDS = 2.0
"""Time that `stop` waits for our thread, which looks twice a second at the least."""
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
        self._path = parsed.path
        self._file = SocketFile(parsed.path) if parsed.path is not None else None
        try:
            self._readers = Readers(parsed, high_water)
        except BaseException:
            if self._file is not None:
                self._file.release()
            raise
        if self._file is not None:
            self._file.note()
        self.address = self._readers.address
        self.session = os.urandom(ID_BYTES)
        self.batches_lost = 0
        """Batches that were never sent: dropped by the bus's queue, too large, or not encodable."""
        self.requests_ignored = 0
        """Requests of a former session, and more of them than one tick answers."""
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
        self._looked_ns = time.monotonic_ns()
        self._throttle = Throttle()
        self._pid = os.getpid()
        self._tick_seconds = tick_seconds
        self._stopping = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None

    @property
    def ring_bytes(self) -> int:
        """Memory of the batches kept for replay; at most `replay_bytes`."""
        return self._ring.bytes

    def start(self) -> None:
        """Begin to send; may be called once. Raises RuntimeError if no thread can be had."""
        if self._thread is not None:
            raise RuntimeError("the publisher has been started before")
        thread = threading.Thread(target=self._run, name="kvscope-wire", daemon=True)
        thread.start()  # raises RuntimeError where the process may have no more threads
        self._thread = thread

    def stop(self) -> None:
        """Send what is queued, for 0.2 s at most, and remove the socket file. May be repeated.

        In a forked child, which has no such thread, it does nothing.
        """
        if self._pid != os.getpid() or self._stopped:
            return
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)
            if self._thread.is_alive():  # held up by its server, which must end all the same
                return
        self._stopped = True
        self._guarded(lambda: self._readers.push(FLUSH_SECONDS))
        self._readers.close()
        if self._file is not None:
            self._file.release()

    def _run(self) -> None:
        while not self._stopping.is_set():
            if not self._guarded(self._pause):
                time.sleep(self._tick_seconds)
            self._guarded(self._tick)
        self._guarded(self._tick)

    def _guarded(self, work: Callable[[], object]) -> bool:
        """Whether it did not raise. It runs in a foreign server, which may lack anything for a
        while: log and go on."""
        try:
            work()
        except Exception:
            with contextlib.suppress(Exception):  # without memory even that may fail
                if self._throttle.allow("round"):
                    logger.exception("the wire at %s failed in one round", self.address)
            return False
        return True

    def _pause(self) -> None:
        """Wait for the next tick, and send meanwhile what readers had no room for."""
        began = time.monotonic()
        if self._readers.waiting:
            self._readers.push(self._tick_seconds)
        left = began + self._tick_seconds - time.monotonic()
        self._stopping.wait(max(0.0, left))

    def _tick(self) -> None:
        self._publish()
        self._serve()
        now_ns = time.monotonic_ns()
        if now_ns - self._looked_ns > LOOK_NS:
            self._looked_ns = now_ns
            self._keep_file()
        if self._snapshot_due and now_ns - self._snapshot_ns > self._snapshot_pause_ns:
            self._snapshot_due, self._snapshot_ns = False, now_ns
            self._subscription.request_snapshot()
        if self._reader_joined or now_ns - self._sent_ns > HEARTBEAT_NS:
            self._reader_joined = False
            seq = self._outbox.next_seq
            self._send(pack_header(FrameKind.HEARTBEAT, 0, self.session, seq, 0))

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

    def _keep_file(self) -> None:
        """Without its file no reader finds the socket, though the server serves."""
        if self._path is None or not (self._file is None or self._file.is_gone):
            return
        try:
            if self._file is not None:
                self._file.release()
                self._file = None
            self._file = SocketFile(self._path)
            self._readers.listen_again()
            self._file.note()
        except EndpointError as error:
            if self._throttle.allow("file"):
                logger.warning("the socket was removed, and new readers cannot connect: %s", error)

    def _serve(self) -> None:
        answered = 0
        for reader, request in self._readers.requests():
            if request.kind == RequestKind.JOIN:
                self._reader_joined = True
            elif request.session != self.session or answered == ANSWERS_PER_TICK:
                self.requests_ignored += 1
            else:
                answered += 1
                self._answer(reader, request.kind, request.seq)

    def _answer(self, reader: Reader, kind: int, seq: int) -> None:
        if kind == RequestKind.SNAPSHOT:
            self._snapshot_due = True
        elif kind == RequestKind.STACKS:
            self._answer_stacks(reader)
        elif kind in (RequestKind.OFF, RequestKind.ON):
            payload = b"" if self.obey is None else self.obey(kind == RequestKind.ON)
            self._answer_with(reader, FrameKind.SWITCHED, payload)
        else:
            self._answer_replay(reader, seq)

    def _answer_replay(self, reader: Reader, seq: int) -> None:
        answer = self._ring.replay(seq, MESSAGE_BYTES)
        if not answer and seq < self._outbox.next_seq:
            self._snapshot_due = True
            answer = pack_header(FrameKind.GONE, 0, self.session, seq, 0)
        if answer:
            self._readers.answer(reader, answer)

    def _answer_stacks(self, reader: Reader) -> None:
        now_ns = time.monotonic_ns()
        if now_ns - self._stacks_ns < STACKS_NS:
            self.requests_ignored += 1  # readers repeat it
            return
        self._stacks_ns = now_ns
        self._answer_with(reader, FrameKind.STACKS, Stacks.now().encoded())

    def _answer_with(self, reader: Reader, kind: FrameKind, payload: bytes) -> None:
        header = pack_header(kind, 0, self.session, 0, len(payload))
        self._readers.answer(reader, header + payload)

    def _send(self, message: bytes) -> None:
        self._readers.send(message)
        self._sent_ns = time.monotonic_ns()


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
        self._ring.append(SentMessage(self._first, self.next_seq, self._has_state, message))
        self._parts, self._size, self._has_state = [], 0, False
        self._send(message)
