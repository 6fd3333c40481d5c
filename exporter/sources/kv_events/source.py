"""The source for a server that publishes KV events: it names what is cached, and nothing else.

A thread reads and orders messages, still encoded, into a queue bounded by bytes; `take` decodes, on
the caller's thread. The first batch of a session is a Hello of ours, since these servers do not
introduce themselves.
"""

import logging
import os
import threading
import time
from collections import deque

import zmq

from exporter.clock import Clock
from exporter.sources.attachments import KV_EVENTS_TELLS
from exporter.sources.kv_events.decoder import Decoded, Decoder
from exporter.sources.kv_events.faults import Faults
from exporter.sources.kv_events.framing import read_answer, read_live
from exporter.sources.kv_events.link import MAX_FRAME_BYTES, Link, LinkEvent
from exporter.sources.kv_events.tracker import Delivery, Tracker
from exporter.sources.source import SourceKind
from kvscope_events.events import CONTRACT_VERSION, Batch, Hello, NamesCleared
from kvscope_events.vocabulary import ServerKind
from kvscope_events.wire.endpoint import parse_endpoint
from kvscope_events.wire.errors import EndpointError

logger = logging.getLogger(__name__)

QUEUE_BYTES = 32 << 20
"""Memory for messages received and not yet taken; a single one of any size always fits."""
MESSAGES_A_ROUND = 256
"""Messages read before the connections are looked at again."""
_IDLE_SECONDS = 1.0
_BUSY_SECONDS = 0.05
_RETRY_SECONDS = 1.0
_ENTRY_BYTES = 300


class KvEventsSource:
    """Reads one publisher from construction to `close`; construction raises EndpointError.

    A publisher with several data-parallel ranks has an endpoint for each: a source reads one rank.
    These streams have no heartbeat, so `up` says that the server is connected.
    """

    kind: SourceKind = "kv_events"
    superseded = False  # another session is introduced as soon as it is heard of

    def __init__(
        self,
        endpoint: str,
        *,
        server: ServerKind,
        engine: str,
        clock: Clock,
        replay: str | None = None,
        topic: str = "",
        bind: bool = False,
        model_name: str = "",
        max_frame_bytes: int = MAX_FRAME_BYTES,
    ) -> None:
        """endpoint: tcp://HOST:PORT or ipc:///PATH, to connect to, or to bind where the server
        connects. replay: the same, always connected to; without one, what was missed is lost."""
        self.endpoint = endpoint
        self.session = ""
        self.last_message_ns: int | None = None
        self._model_name = model_name
        self._server: ServerKind = server
        self._engine = engine
        self._clock_ns = clock.monotonic_ns
        self._address = _checked(endpoint, bind)
        self._replay = None if replay is None else _checked(replay, False)
        self._topic = topic
        self._bind = bind
        self._max_frame_bytes = max_frame_bytes
        self._faults = Faults(endpoint, clock.monotonic_ns)
        self._queue: deque[tuple[Delivery, int]] = deque()
        self._put_bytes = 0  # written by our thread alone
        self._taken_bytes = 0  # written by the caller of `take`, so that neither needs a lock
        self._ready = threading.Event()
        self._stopping = threading.Event()
        self._tracker = Tracker(self._put, replays=replay is not None)
        self._began_ns = self._clock_ns()  # when the session that is heard now was first heard of
        # Of the caller of `take`:
        self._nonce = os.urandom(8).hex()
        self._given = 0  # session of the batch last taken
        self._introduced_as = ""
        self._held: tuple[Delivery, int] | None = None  # waits for its session's Hello
        self._decoder = Decoder()
        self._rank: int | None = None
        self._known = False
        self._lost = 0  # since the batch last taken
        self._unreadable = 0
        self._seq = 0
        self._link = self._connect()
        self._thread = threading.Thread(target=self._run, name="kvscope-kv-events", daemon=True)
        self._thread.start()

    @property
    def model_name(self) -> str:
        """Value of the label; it may be set at any time, and a new Hello follows."""
        return self._model_name

    @model_name.setter
    def model_name(self, name: str) -> None:
        self._model_name = name
        self._ready.set()

    @property
    def up(self) -> bool:
        """Whether a publisher is connected."""
        return self._link.num_peers > 0

    @property
    def state_known(self) -> bool:
        """Whether the batches taken give all that the device's tier holds."""
        tracker = self._tracker
        if not self._known or self._given != tracker.session or not tracker.certain:
            return False
        return self.up and not tracker.contested(time.monotonic_ns())

    @property
    def batches_dropped(self) -> int:
        """Messages that never came or could not be read, since the source joined the stream."""
        return self._tracker.lost + self._unreadable

    @property
    def gaps(self) -> int:
        return self._tracker.gaps + self._unreadable

    @property
    def decode_errors(self) -> dict[str, int]:
        """Counts by kind; all of `ERROR_KINDS` are there from the start."""
        return self._faults.counts

    def take(self) -> tuple[Batch, int] | None:
        while True:
            heard = self._tracker.session  # read first: its messages are in the queue later
            if self._held is None and self._queue:
                self._held = self._queue.popleft()
                self._taken_bytes += len(self._held[0].payload) + _ENTRY_BYTES
            if self._held is None:
                if heard and heard != self._given:
                    return self._introduce(heard, self._began_ns), 0
                if self._given and self._model_name != self._introduced_as:
                    return self._introduce(self._given, self._began_ns), 0
                return None
            delivery, arrived_ns = self._held
            if delivery.session != self._given or self._model_name != self._introduced_as:
                return self._introduce(delivery.session, arrived_ns), 0
            self._held = None
            batch = self._read(delivery, arrived_ns)
            if batch is not None:
                lost, self._lost = self._lost, 0
                return batch, lost

    def wait(self, timeout: float) -> bool:
        ready = self._ready.wait(timeout)
        self._ready.clear()
        return ready

    def wake(self) -> None:
        self._ready.set()

    def close(self) -> None:
        """End the thread and the connections; may be repeated."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._link.wake()
        self._thread.join()

    def _introduce(self, session: int, arrived_ns: int) -> Batch:
        if session != self._given:
            self._given = session
            self.session = f"{self._nonce}-{session}"
            self._rank = None
            self._known = True  # unless its first message has a predecessor
            self._lost = 0
        self._introduced_as = self._model_name
        hello = Hello(
            contract=CONTRACT_VERSION,
            session=self.session,
            server=self._server,
            server_version="",
            model_name=self._introduced_as,
            engine=self._engine,
            pid=0,  # not known; no process has it
            ready=True,
            tells=sorted(KV_EVENTS_TELLS),
            requests_are="sequence",
        )
        self._seq += 1
        return Batch(self._seq, arrived_ns, [hello], 0, arrived_ns)

    def _read(self, delivery: Delivery, arrived_ns: int) -> Batch | None:
        if delivery.broken:
            self._known = False
            self._lost += max(1, delivery.lost)
        decoded = self._decoder.decode(delivery.payload)
        if not isinstance(decoded, Decoded):
            self._faults.count(decoded.kind, decoded.problem)
            self._unreadable += 1
            self._lost += 1
            self._known = False
            return None
        if not self._is_ours(decoded.rank):
            self._known = False
            self._lost += 1
            return None
        if decoded.unknown:
            self._faults.count("unknown_event", "events are left out", decoded.unknown)
        if not self._known:
            self._known = any(isinstance(event, NamesCleared) for event in decoded.events)
        self._seq += 1 + self._lost
        # Their monotonic clock is not told, and a wall clock may jump.
        return Batch(self._seq, arrived_ns, decoded.events, decoded.wall_ns, arrived_ns)

    def _is_ours(self, rank: int | None) -> bool:
        if self._rank is None:
            self._rank = rank
        if rank is None or rank == self._rank:
            return True
        problem = f"rank {rank} publishes where rank {self._rank} does"
        self._faults.count("second_publisher", problem)
        return False

    def _connect(self) -> Link:
        return Link(
            self._address,
            self._replay,
            self._topic,
            bind=self._bind,
            max_bytes=self._max_frame_bytes,
        )

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._listen(self._link)
            except zmq.ZMQError as error:  # nothing of the peer's doing: the process is in need
                logger.error("%s: cannot be read now: %s; tried again", self.endpoint, error)
                self._tracker.on_disconnected()
                self._reconnect()
        self._link.close()

    def _reconnect(self) -> None:
        self._link.close()
        while not self._stopping.wait(_RETRY_SECONDS):
            try:
                self._link = self._connect()
            except EndpointError as error:
                logger.error("%s; tried again", error)
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
            for _ in range(MESSAGES_A_ROUND):
                if not self._receive(link, now_ns):
                    break
            if tracker.timed_out(now_ns):
                link.forget_answers()
            has_room = self._put_bytes - self._taken_bytes <= QUEUE_BYTES // 2
            wanted = tracker.request(now_ns, has_room=has_room)
            if wanted is not None:
                link.ask(wanted)
            if tracker.session != session:
                self._began_ns = self._clock_ns()
                self._ready.set()

    def _on_event(self, event: LinkEvent, link: Link) -> None:
        if event == "connected":
            self._tracker.on_connected()
        elif event == "disconnected":
            self._tracker.on_disconnected()
            link.forget_answers()
        else:
            self._faults.count(event, _PROBLEMS[event])

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
        if self._queue and self._put_bytes - self._taken_bytes + size > QUEUE_BYTES:
            return False
        self._put_bytes += size
        self._queue.append((delivery, self._clock_ns()))
        self._ready.set()
        return True


_PROBLEMS = {
    "malformed": "the peer is not a publisher",
    "too_large": "the peer broke off in mid-message, or sent a message over the size limit",
}


def _checked(endpoint: str, bind: bool) -> str:
    parsed = parse_endpoint(endpoint, allow_remote=True)
    if not bind and "://*:" in endpoint:
        raise EndpointError(endpoint, "no host to connect to", "name the server's host")
    return parsed.address
