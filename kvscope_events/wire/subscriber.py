"""Reads a publisher's batches from a thread of its own; memory is bounded by bytes.

The thread owns the socket and queues what it receives in order, still encoded. When the queue is
full, the thread stops reading and later requests what it missed: the publisher's ring is the longer
queue. `take` decodes, on the caller's thread.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from kvscope_events.events import Batch
from kvscope_events.throttle import Throttle
from kvscope_events.wire.frame import (
    DECODE_ERROR_KINDS,
    HAS_STATE,
    MAX_MESSAGE_BYTES,
    DecodeErrorKind,
    FrameError,
    decode_batch,
    read_frames,
)
from kvscope_events.wire.link import Link
from kvscope_events.wire.message import Message, MessageKind
from kvscope_events.wire.run_directory import connectable
from kvscope_events.wire.stream import Delivery, Stream
from kvscope_events.wire.wake import Wake

logger = logging.getLogger(__name__)

QUEUE_BYTES = 16 << 20
"""Memory for batches received but not yet taken; a single batch of any size always fits."""
SILENCE_NS = 5_000_000_000
"""Silence after which a publisher counts as down; it sends a heartbeat every second."""
_BUSY_SECONDS = 0.05
"""Longest wait for a message while something has to be asked for again."""
_IDLE_SECONDS = 1.0
"""The same otherwise: a silent publisher sends a heartbeat as often."""
_TROUBLE_SECONDS = 1.0
"""Pause after an error of this process, which is not the peer's fault."""
_ENTRY_BYTES = 300


class ReceivedBatch(NamedTuple):
    """A batch, stamped with its arrival."""

    batch: Batch
    lost: int  # batches missing just before it


class WireSubscriber:
    """Reads from construction to `close`; construction raises EndpointError.

    A reader too slow for the queue falls back on the batches that the publisher still holds, and
    loses only older ones. It has the interface of the exporter's sources.

    `take` may be called by one thread at a time, `wait` and the properties by any thread.
    """

    kind: Literal["wire"] = "wire"

    def __init__(
        self,
        endpoint: str,
        *,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        queue_bytes: int = QUEUE_BYTES,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        allow_remote: bool = False,
    ) -> None:
        self.endpoint = endpoint
        self.session = ""
        """Session of the batch last taken; when it changes, everything starts over."""
        self.last_message_ns: int | None = None
        """Arrival of the last valid frame, on `clock_ns`; None before the first."""
        self.decode_errors: dict[str, int] = dict.fromkeys(DECODE_ERROR_KINDS, 0)
        self._endpoint = connectable(endpoint, allow_remote=allow_remote)
        self._max_message_bytes = max_message_bytes
        self._clock_ns = clock_ns
        self._queue_bytes = queue_bytes
        self._queue: deque[tuple[Delivery, int]] = deque()
        self._put_bytes = 0  # written only by our thread
        self._taken_bytes = 0  # written by the caller of `take`, so that neither needs a lock
        self._ready = threading.Event()
        self._stopping = threading.Event()
        self._wake = Wake(endpoint)
        self._stream = Stream(self._put)
        self._throttle = Throttle(clock_ns)
        self.batches_dropped = 0
        """Batches that never came or could not be read."""
        self._lost = 0  # those of them since the batch last taken
        self._unreadable = 0
        self._damaged = False  # a batch could not be read, and the state has not come since
        self._has_state = False
        self._session: bytes | None = None  # of the batch last read, also in vain
        self._given: bytes | None = None  # of the batch last taken
        self._thread = threading.Thread(target=self._run, name="kvscope-wire-reader", daemon=True)
        self._thread.start()

    @property
    def queued_bytes(self) -> int:
        """Memory of the batches received but not yet taken."""
        return self._put_bytes - self._taken_bytes

    @property
    def up(self) -> bool:
        """Whether a valid frame came within the last five seconds."""
        last_ns = self.last_message_ns
        return last_ns is not None and self._clock_ns() - last_ns <= SILENCE_NS

    @property
    def state_known(self) -> bool:
        """Whether the batches taken give the publisher's state, with none known to be missing."""
        stream = self._stream
        if self._damaged or stream.behind or stream.session != self._session:
            return False
        return self._has_state and self.up

    @property
    def superseded(self) -> bool:
        """Whether another publisher has taken over and all batches of the former one are taken."""
        heard = self._stream.session  # read first: what comes before it is in the queue by then
        return self._given not in (None, heard) and not self._queue

    @property
    def gaps(self) -> int:
        """Times that a batch was missing or could not be read, whether it came later or not."""
        return self._stream.gaps + self._unreadable

    def wait(self, timeout: float) -> bool:
        """Wait until a batch may be available; True if so."""
        ready = self._ready.wait(timeout)
        self._ready.clear()
        return ready

    def take(self) -> ReceivedBatch | None:
        """The next batch, or None when none is queued."""
        while self._queue:
            delivery, arrived_ns = self._queue.popleft()
            self._taken_bytes += len(delivery.payload) + _ENTRY_BYTES
            batch = self._read(delivery)
            if batch is not None:
                lost, self._lost = self._lost, 0
                if delivery.session != self._given:
                    self._given = delivery.session
                    self.session = delivery.session.hex()
                # It was decoded just now and is not shared yet: setting the field is cheaper than
                # a copy.
                msgspec.structs.force_setattr(batch, "arrived_ns", arrived_ns)
                return ReceivedBatch(batch, lost)
        return None

    def request_snapshot(self) -> None:
        """Ask for the whole state; for the thread that takes."""
        self._stream.snapshot_wanted = True
        self._wake.rouse()

    def wake(self) -> None:
        """Interrupt a wait in progress."""
        self._ready.set()

    def close(self) -> None:
        """End the thread and the connection; may be repeated."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._wake.rouse()
        self._thread.join()
        self._wake.close()

    def _read(self, delivery: Delivery) -> Batch | None:
        """Decode; None if that fails, or if it failed before and the state has not come since."""
        if delivery.session != self._session:
            self._session = delivery.session
            self._has_state = self._damaged = False
            self._lost = 0
        self._lose(delivery.lost)
        has_state = bool(delivery.flags & HAS_STATE)
        if self._damaged and not has_state:
            self._lose(1)
            return None
        try:
            batch, unknown = decode_batch(delivery.payload)
        except FrameError as error:
            self._count(error.kind, error.problem)
            self._unreadable += 1
            self._lose(1)
            self._damaged = True
            self.request_snapshot()
            return None
        if unknown:
            self._count("unknown_event", "events of a newer producer are left out", unknown)
        self._damaged = False
        self._has_state = self._has_state or has_state
        return batch

    def _lose(self, batches: int) -> None:
        self._lost += batches
        self.batches_dropped += batches

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._listen()
            except OSError as error:
                if self._throttle.allow("unreadable"):
                    logger.error(
                        "%s: cannot be read now: %s; retrying", self.endpoint, error.strerror
                    )
                self._stopping.wait(_TROUBLE_SECONDS)

    def _listen(self) -> None:
        link = Link(self._endpoint, self._wake, self._max_message_bytes)
        try:
            heard_ns = time.monotonic_ns()
            while not self._stopping.is_set():
                message = link.receive(self._patience())
                now_ns = time.monotonic_ns()
                if message is not None and self._on_message(message):
                    heard_ns = now_ns
                for kind, problem in link.faults():
                    self._count(kind, problem)
                if now_ns - heard_ns > SILENCE_NS:
                    heard_ns = now_ns
                    self._stream.forgive()
                    link.renew()
                self._ask(link, now_ns)
        finally:
            link.close()

    def _patience(self) -> float:
        settled = not self._stream.behind and not self._stream.snapshot_wanted
        return _IDLE_SECONDS if settled else _BUSY_SECONDS

    def _on_message(self, message: Message) -> bool:
        """Take a message; False if it is not a valid one of our publisher."""
        try:
            frames = read_frames(message.body)
            if message.kind == MessageKind.ANSWER:
                self._stream.on_answer(frames)
            else:
                self._stream.on_stream(frames)
        except FrameError as error:
            self._count(error.kind, error.problem)
            return False
        self.last_message_ns = self._clock_ns()
        return True

    def _ask(self, link: Link, now_ns: int) -> None:
        session = self._stream.session
        if session is None or self.queued_bytes > self._queue_bytes // 2:
            return
        request = self._stream.request(now_ns)
        if request is not None:
            link.ask(request[0], session, request[1])

    def _put(self, delivery: Delivery) -> bool:
        size = len(delivery.payload) + _ENTRY_BYTES
        if self._queue and self.queued_bytes + size > self._queue_bytes:
            return False
        self._put_bytes += size
        self._queue.append((delivery, self._clock_ns()))
        if not self._ready.is_set():
            self._ready.set()
        return True

    def _count(self, kind: DecodeErrorKind, problem: str, count: int = 1) -> None:
        self.decode_errors[kind] += count
        if self._throttle.allow(kind):
            errors = self.decode_errors[kind]
            logger.warning("%s: %s (%s: %d so far)", self.endpoint, problem, kind, errors)
