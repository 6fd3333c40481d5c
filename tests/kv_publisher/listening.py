"""A router's view of KV events: passed directly, or received on real sockets."""

from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import msgspec
import zmq

from kvscope_events.events import BlockHash

END = b"\xff" * 8


@dataclass
class Router:
    """A `ContentListener` that keeps the names, and checks that each is reported once."""

    names: set[BlockHash] = field(default_factory=set)
    tokens: dict[BlockHash, tuple[int, ...]] = field(default_factory=dict)
    """From the sequence's first token on, by the name of their last block."""
    salts: dict[BlockHash, str] = field(default_factory=dict)
    num_cleared: int = 0

    def stored(
        self,
        hashes: list[BlockHash],
        parent: BlockHash | None,
        tokens: list[int],
        block_size: int,
        salt: str,
    ) -> None:
        assert hashes
        assert len(tokens) == len(hashes) * block_size
        before: tuple[int, ...] = ()
        if parent is not None:
            assert parent in self.names, "a child whose parent is not there"
            before = self.tokens[parent]
        for i, name in enumerate(hashes):
            assert name not in self.names, "stored twice"
            self.names.add(name)
            before += tuple(tokens[i * block_size : (i + 1) * block_size])
            self.tokens[name] = before
        if salt:
            assert parent is None
            self.salts[hashes[0]] = salt

    def removed(self, hashes: list[BlockHash]) -> None:
        assert hashes
        for name in hashes:
            self.names.remove(name)

    def cleared(self) -> None:
        self.num_cleared += 1
        self.names.clear()

    def end_step(self) -> None:
        pass


class Subscriber:
    """A SUB socket, and a DEALER for replays."""

    def __init__(
        self, address: str, replay: str | None = None, *, bind: bool = False, high_water: int = 1000
    ) -> None:
        self._context = zmq.Context()
        self._stream = self._context.socket(zmq.SUB)
        self._stream.setsockopt(zmq.RCVHWM, high_water)
        self._stream.setsockopt(zmq.SUBSCRIBE, b"")
        self.address = address
        if bind:
            self._stream.bind(address)
            self.address = self._stream.getsockopt_string(zmq.LAST_ENDPOINT)
        else:
            self._stream.connect(address)
        self._dealer = self._context.socket(zmq.DEALER)
        if replay is not None:
            self._dealer.connect(replay)

    def __enter__(self) -> "Subscriber":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._context.destroy(linger=0)

    def hear(self, seconds: float = 20.0) -> tuple[bytes, int, bytes]:
        """Topic, number and payload of the next message; fails the test if none comes."""
        assert self._stream.poll(int(seconds * 1000)), "no message"
        topic, number, payload = self._stream.recv_multipart()
        assert len(number) == 8
        return topic, int.from_bytes(number, "big"), payload

    def is_silent(self, seconds: float = 0.2) -> bool:
        return not self._stream.poll(int(seconds * 1000))

    def ask(self, *frames: bytes) -> None:
        self._dealer.send_multipart(frames)

    def replayed(self, first: int) -> list[tuple[bytes, int, bytes]]:
        """The whole answer to one request, without its end."""
        self.ask(b"", first.to_bytes(8, "big"))
        answer: list[tuple[bytes, int, bytes]] = []
        while True:
            assert self._dealer.poll(20_000), "the answer has no end"
            empty, topic, number, payload = self._dealer.recv_multipart()
            assert empty == b""
            if number == END:
                assert (topic, payload) == (b"", b"")
                return answer
            answer.append((topic, int.from_bytes(number, "big"), payload))


def events_of(payload: bytes) -> list[dict[str, Any]]:
    """The events of one message, as anybody's MessagePack reads them."""
    wall_seconds, events, rank = msgspec.msgpack.decode(payload)
    assert isinstance(wall_seconds, float)
    assert rank == 0
    return events  # type: ignore[no-any-return]
