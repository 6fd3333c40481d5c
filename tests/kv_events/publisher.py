"""A publisher of KV events over real sockets, with a replay in either framing."""

import threading
from collections import deque
from collections.abc import Callable, Iterable

import zmq

from tests.kv_events.dialects import BY_NAME, Dialect, Said
from tests.support.waiting import WAIT_SECONDS

END = b"\xff" * 8


class Publisher:
    """Works like servers: one thread sends and, in between, answers replays."""

    def __init__(
        self,
        endpoint: str,
        replay: str | None = None,
        *,
        topic: str = "kv-events",
        dialect: Dialect = BY_NAME["vllm-0.32"],
        replay_has_topic: bool = True,
        buffered: int = 10_000,
        bind: bool = True,
        first_seq: int = 0,
    ) -> None:
        self.dialect = dialect
        self.next_seq = first_seq
        self.requests: list[int] = []
        """Numbers that replays were requested from."""
        self._topic = topic.encode()
        self._replay_has_topic = replay_has_topic
        self.buffer: deque[tuple[int, bytes]] = deque(maxlen=buffered)
        self._context = zmq.Context()
        self._lock = threading.Lock()
        self._stream = self._context.socket(zmq.XPUB)  # a PUB that can say who has joined
        self._stream.setsockopt(zmq.LINGER, 500)
        self._stream.setsockopt(zmq.XPUB_VERBOSE, 1)
        self._stream.setsockopt(zmq.SNDHWM, 100_000)  # as servers do; their ROUTER has the default
        if bind:
            self._stream.bind(endpoint)
        else:
            self._stream.connect(endpoint)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        if replay is not None:
            self._router = self._context.socket(zmq.ROUTER)
            self._router.bind(replay)
            self._thread = threading.Thread(target=self._answer, daemon=True)
            self._thread.start()

    def say(self, *events: Said, lost: bool = False, time: float | None = None) -> int:
        """Publish one message; `lost`: it never leaves, as beyond a high-water mark."""
        moment = 1000.0 + self.next_seq if time is None else time
        return self.send(self.dialect.message(events, time=moment), lost=lost)

    def send(self, payload: bytes, *, lost: bool = False) -> int:
        """Publish any bytes."""
        with self._lock:
            seq = self.next_seq
            self.next_seq += 1
            self.buffer.append((seq, payload))
            if not lost:
                self.raw([self._topic, seq.to_bytes(8, "big"), payload])
        return seq

    def joined(self) -> None:
        """Wait for one more reader: it is connected before it is subscribed, and misses what is
        published between the two."""
        subscribed = False
        while not subscribed:
            assert self._stream.poll(int(WAIT_SECONDS * 1000)), "no reader has joined"
            subscribed = self._stream.recv().startswith(b"\x01")

    def raw(self, frames: Iterable[bytes]) -> None:
        """Send any frames, unnumbered."""
        self._stream.send_multipart(list(frames))

    def close(self, *, abruptly: bool = True) -> None:
        """End, as a process does that is killed."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._context.destroy(linger=0 if abruptly else 500)

    def _answer(self) -> None:
        while not self._stopping.is_set():
            if not self._router.poll(10):
                continue
            client, _, seq = self._router.recv_multipart()
            first = int.from_bytes(seq, "big")
            self.requests.append(first)
            with self._lock:
                for number, payload in self.buffer:
                    if number >= first:
                        self._reply(client, self._topic, number.to_bytes(8, "big"), payload)
                self._reply(client, b"", END, b"")

    def _reply(self, client: bytes, topic: bytes, *frames: bytes) -> None:
        head = [client, b"", topic] if self._replay_has_topic else [client, b""]
        self._router.send_multipart([*head, *frames])


Publish = Callable[..., Publisher]
"""Starts one where a test looks for it; `replay=False` leaves the replay out."""
