"""The source for a server that publishes KV events, which only name what is cached.

Messages are decoded by `take`, on the caller's thread. The first batch of a session is a Hello of
ours, since these servers do not introduce themselves.
"""

import os

from kvscope_events.events import CONTRACT_VERSION, Batch, Hello, NamesCleared
from kvscope_events.producers import KV_STREAM_EVENTS
from kvscope_events.vocabulary import ServerKind
from kvscope_events.wire.endpoint import EndpointError, parse_endpoint
from kvscope_exporter.clock import Clock
from kvscope_exporter.faults import Faults
from kvscope_exporter.sources.attachments import SourceKind
from kvscope_exporter.sources.kv_events.decoder import ERROR_KINDS, DecodedMessage, Decoder
from kvscope_exporter.sources.kv_events.framing import MAX_FRAME_BYTES
from kvscope_exporter.sources.kv_events.tracker import Delivery


class KvEventsSource:
    """Reads one publisher from construction to `close`; construction raises EndpointError.

    A server with several data-parallel ranks has an endpoint for each: a source reads one rank.
    These streams have no heartbeat, so `up` says that the server is connected.
    """

    kind: SourceKind = "kv_events"
    superseded = False  # another session is introduced as soon as it is heard

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
        """endpoint: tcp://HOST:PORT or ipc:///PATH, to connect to, or to bind if the server
        connects. replay: the same, always to connect to; without it, missed messages are lost."""
        self.endpoint = endpoint
        self.session = ""
        self._server: ServerKind = server
        self._engine = engine
        self._model_name = model_name
        self._introduced_as = ""
        self._nonce = os.urandom(8).hex()
        self._given = 0  # session of the batch last taken
        self._held: tuple[Delivery, int] | None = None  # waits for its session's Hello
        self._decoder = Decoder()
        self._rank: int | None = None
        self._known = False
        self._lost = 0  # since the batch last taken
        self._unreadable = 0
        self._seq = 0
        self._faults = Faults(endpoint, ERROR_KINDS, clock.monotonic_ns)
        from kvscope_exporter.sources.kv_events.reader import Address, Reader  # pyzmq, of an extra

        address = Address(
            _checked(endpoint, bind),
            None if replay is None else _checked(replay, bind=False),
            topic,
            bind,
        )
        self._reader = Reader(address, clock, self._faults, max_frame_bytes)

    @property
    def model_name(self) -> str:
        """Value of the label; it may be set at any time, and a new Hello follows."""
        return self._model_name

    @model_name.setter
    def model_name(self, name: str) -> None:
        self._model_name = name
        self._reader.ready.set()

    @property
    def up(self) -> bool:
        """Whether a publisher is connected."""
        return self._reader.num_peers > 0

    @property
    def state_known(self) -> bool:
        """Whether the batches taken give the whole content of the device's tier."""
        reader = self._reader
        return self._known and self._given == reader.session and reader.certain and self.up

    @property
    def last_message_ns(self) -> int | None:
        return self._reader.last_message_ns

    @property
    def batches_dropped(self) -> int:
        """Messages that never came or could not be read, since the source joined the stream."""
        return self._reader.lost + self._unreadable

    @property
    def gaps(self) -> int:
        return self._reader.gaps + self._unreadable

    @property
    def decode_errors(self) -> dict[str, int]:
        """Counts by kind; all of `ERROR_KINDS` are present from the start."""
        return self._faults.counts

    def take(self) -> tuple[Batch, int] | None:
        while True:
            heard = self._reader.session  # read first: its messages are queued later
            if self._held is None:
                self._held = self._reader.take()
            if self._held is None:
                session = heard or self._given
                arrived_ns = self._reader.session_ns
            else:
                session = self._held[0].session
                arrived_ns = self._held[1]
            if session != self._given or (session and self._model_name != self._introduced_as):
                return self._introduce(session, arrived_ns), 0
            if self._held is None:
                return None
            delivery, self._held = self._held[0], None
            batch = self._read(delivery, arrived_ns)
            if batch is not None:
                lost, self._lost = self._lost, 0
                return batch, lost

    def request_snapshot(self) -> None:
        """Do nothing: these streams have no snapshots."""

    def wait(self, timeout: float) -> bool:
        ready = self._reader.ready.wait(timeout)
        self._reader.ready.clear()
        return ready

    def wake(self) -> None:
        self._reader.ready.set()

    def close(self) -> None:
        """End the thread and the connections; may be repeated."""
        self._reader.close()

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
            tells=sorted(KV_STREAM_EVENTS),
            requests_are="sequence",
        )
        self._seq += 1
        return Batch(self._seq, arrived_ns, [hello], 0, arrived_ns)

    def _read(self, delivery: Delivery, arrived_ns: int) -> Batch | None:
        """Decode; None if that fails, which is a loss."""
        if delivery.broken:
            self._known = False
            self._lost += max(1, delivery.lost)
        decoded = self._decoder.decode(delivery.payload)
        if not isinstance(decoded, DecodedMessage):
            self._faults.count(decoded.kind, decoded.problem)
            self._lose()
            return None
        if not self._is_ours(decoded.rank):
            self._lose()
            return None
        if decoded.unknown:
            self._faults.count("unknown_event", "events are left out", decoded.unknown)
        if not self._known:
            self._known = any(isinstance(event, NamesCleared) for event in decoded.events)
        self._seq += 1 + self._lost
        # Their monotonic clock is not reported, and a wall clock may jump.
        return Batch(self._seq, arrived_ns, decoded.events, decoded.wall_ns, arrived_ns)

    def _lose(self) -> None:
        self._unreadable += 1
        self._lost += 1
        self._known = False

    def _is_ours(self, rank: int | None) -> bool:
        if self._rank is None:
            self._rank = rank
        if rank is None or rank == self._rank:
            return True
        problem = f"rank {rank} publishes where rank {self._rank} does"
        self._faults.count("second_publisher", problem)
        return False


def _checked(endpoint: str, bind: bool) -> str:
    parsed = parse_endpoint(endpoint, allow_remote=True)
    if not bind and "://*:" in endpoint:
        raise EndpointError(endpoint, "no host to connect to", "name the server's host")
    return parsed.address
