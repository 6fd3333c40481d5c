"""The two ZMQ sockets of a publisher, opened together or not at all."""

import contextlib

import zmq

from engine.kv_events.settings import KvEventsConfig
from kvscope_events.wire.endpoint import parse_endpoint
from kvscope_events.wire.errors import EndpointError
from kvscope_events.wire.socket_file import SocketFile

REQUEST_BYTES = 1024
"""Of any message from outside: a subscription or a request for a replay."""
FLUSH_MS = 200
"""How long `close` may take to deliver what is queued."""


class Sockets:
    """`stream` publishes; `replay`, where there is one, answers. Raises EndpointError.

    The addresses are those in use, with the port that was chosen where port 0 was asked for.
    """

    def __init__(self, config: KvEventsConfig) -> None:
        self._files: list[SocketFile] = []
        self._context = zmq.Context()
        self.replay: zmq.Socket[bytes] | None = None
        self.replay_address: str | None = None
        try:
            self.stream = self._open(zmq.PUB, config.hwm)
            if config.binds:
                self.address = self._bind(self.stream, config.address)
            else:
                self.address = parse_endpoint(config.address, allow_remote=True).address
                self.stream.connect(self.address)
            if config.replay_endpoint is not None:
                # A whole answer fits; beyond it the ROUTER drops for that reader alone.
                self.replay = self._open(zmq.ROUTER, config.buffer_steps + 2)
                self.replay_address = self._bind(self.replay, config.replay_endpoint)
        except BaseException:
            self._release(linger=0)
            raise

    def close(self) -> None:
        self._release(linger=FLUSH_MS)

    def _open(self, kind: int, high_water: int) -> "zmq.Socket[bytes]":
        opened = self._context.socket(kind)
        opened.setsockopt(zmq.SNDHWM, high_water)
        opened.setsockopt(zmq.MAXMSGSIZE, REQUEST_BYTES)
        return opened

    def _bind(self, socket: "zmq.Socket[bytes]", endpoint: str) -> str:
        parsed = parse_endpoint(endpoint, allow_remote=True)
        if parsed.path is not None:
            self._files.append(SocketFile(parsed.path))
        socket.setsockopt(zmq.IPV6, int("[" in parsed.address or "::" in parsed.address))
        try:
            socket.bind(parsed.address)
        except zmq.ZMQError as error:
            raise EndpointError(
                endpoint, f"cannot be bound: {error.strerror}", "use another endpoint"
            ) from error
        return socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def _release(self, linger: int) -> None:
        with contextlib.ExitStack() as stack:
            for file in self._files:
                stack.callback(file.release)
            self._context.destroy(linger=linger)
