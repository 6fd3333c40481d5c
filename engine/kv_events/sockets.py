"""The two ZMQ sockets of a publisher, opened together or not at all."""

import contextlib
import logging
import threading

import zmq

from engine.kv_events.settings import KvEventsConfig
from kvscope_events.wire.endpoint import EndpointError, parse_endpoint
from kvscope_events.wire.socket_file import SocketFile

REQUEST_BYTES = 1024
"""Maximum bytes of a message from outside: a subscription or a request for a replay."""
FLUSH_MS = 200
"""Time that `close` may take to deliver what is queued."""
END_SECONDS = 1.0
"""Time that ZMQ's own threads may take to end after that."""

logger = logging.getLogger(__name__)


class Sockets:
    """`stream` publishes; `replay`, if any, answers. Raises EndpointError.

    The addresses are those in use, with the chosen port if port 0 was requested.
    """

    def __init__(self, config: KvEventsConfig) -> None:
        self._files: list[SocketFile] = []
        self._context = zmq.Context()
        self.replay: zmq.Socket[bytes] | None = None
        self.replay_address: str | None = None
        try:
            self.stream = self._open(zmq.PUB, config.hwm, config.address)
            self.address = self._attach(self.stream, config.address, binds=config.binds)
            if config.replay_endpoint is not None:
                # A whole answer fits; beyond it the ROUTER drops messages for that reader only.
                place = config.replay_endpoint
                self.replay = self._open(zmq.ROUTER, config.buffer_steps + 2, place)
                self.replay_address = self._attach(self.replay, place, binds=True)
        except BaseException:
            self._release(linger=0)
            raise

    def close(self) -> None:
        self._release(linger=FLUSH_MS)

    def _open(self, kind: int, high_water: int, endpoint: str) -> "zmq.Socket[bytes]":
        opened = self._context.socket(kind)
        opened.setsockopt(zmq.SNDHWM, high_water)
        opened.setsockopt(zmq.MAXMSGSIZE, REQUEST_BYTES)
        opened.setsockopt(zmq.IPV6, int("[" in endpoint or "::" in endpoint))
        return opened

    def _attach(self, socket: "zmq.Socket[bytes]", endpoint: str, *, binds: bool) -> str:
        parsed = parse_endpoint(endpoint, allow_remote=True)
        if binds and parsed.path is not None:
            self._files.append(SocketFile(parsed.path))
        try:
            if binds:
                socket.bind(parsed.address)
                return socket.getsockopt_string(zmq.LAST_ENDPOINT)
            socket.connect(parsed.address)
        except zmq.ZMQError as error:
            verb = "bound" if binds else "connected to"
            raise EndpointError(
                endpoint, f"cannot be {verb}: {error.strerror}", "use another endpoint"
            ) from error
        return parsed.address

    def _release(self, linger: int) -> None:
        with contextlib.ExitStack() as stack:
            for file in self._files:
                stack.callback(file.release)
            self._end(linger)

    def _end(self, linger: int) -> None:
        """Close the sockets and terminate their context.

        If a reader disconnects at that very moment, libzmq 4.3.5 sometimes waits forever for one of
        its own threads. The server has to exit anyway, so such a context is abandoned.
        """
        ending = threading.Thread(
            target=self._context.destroy, args=(linger,), name="kv-events-end", daemon=True
        )
        ending.start()
        ending.join(linger / 1000 + END_SECONDS)
        if ending.is_alive():
            logger.warning("KV events: ZMQ does not close; abandoning its threads")
