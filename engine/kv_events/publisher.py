"""Publishes KV events as vLLM does, from a thread of its own; the engine's step pays the appends.

A message has three frames: topic, number (eight bytes, big-endian, by one from 0 on), payload. The
number is given when the step ends: a step that is dropped, because the queue is full, leaves a gap
that readers see. ZMQ drops messages only for a slow reader, which sees the same.
"""

import logging
import threading
import time
from collections import deque
from typing import NamedTuple

import zmq

from engine.kv_events.messages import Change, Cleared, MessageEncoder, Removed, Stored
from engine.kv_events.replay import Replay
from engine.kv_events.settings import KvEventsConfig
from engine.kv_events.sockets import Sockets
from kvscope_events.events import BlockHash
from kvscope_events.throttle import ThrottledLog

TICK_SECONDS = 0.01
"""Pause between two looks at the queue: the most that it adds to a message's age."""

logger = logging.getLogger(__name__)


class _Step(NamedTuple):
    number: int
    wall_seconds: float
    changes: list[Change]


class KvEventPublisher:
    """A `ContentListener`. Construction opens the sockets and raises EndpointError."""

    def __init__(self, config: KvEventsConfig, *, tick_seconds: float = TICK_SECONDS) -> None:
        self._sockets = Sockets(config)
        self.address = self._sockets.address
        self.replay_address = self._sockets.replay_address
        self.num_dropped = 0
        """Steps whose events were dropped, because the queue was full."""
        self._topic = config.topic.encode()
        self._replay = Replay(self._sockets.replay, self._topic, config.buffer_steps)
        self._encoder = MessageEncoder(int_hashes=config.int_block_hashes)
        self._changes: list[Change] = []  # of the current step
        self._queue: deque[_Step] = deque()
        self._max_queue_size = config.max_queue_size
        self._next_number = 0
        self._drops_logged = 0
        self._log = ThrottledLog(logger)
        self._tick_seconds = tick_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kvscope-kv-publisher", daemon=True)

    def stored(
        self,
        hashes: list[BlockHash],
        parent: BlockHash | None,
        tokens: list[int],
        block_size: int,
        salt: str,
    ) -> None:
        self._changes.append(Stored(hashes, parent, tokens, block_size, salt))

    def removed(self, hashes: list[BlockHash]) -> None:
        self._changes.append(Removed(hashes))

    def cleared(self) -> None:
        self._changes.append(Cleared())

    def end_step(self) -> None:
        """Queue the step's events as one message; a full queue drops them."""
        if not self._changes:
            return
        changes, self._changes = self._changes, []
        number, self._next_number = self._next_number, self._next_number + 1
        if len(self._queue) >= self._max_queue_size:
            self.num_dropped += 1
        else:
            self._queue.append(_Step(number, time.time(), changes))

    def start(self) -> None:
        """Begin to send; may be called once."""
        self._thread.start()

    def stop(self) -> None:
        """Send what is queued and close the sockets; the engine has stopped."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._sockets.close()

    def _run(self) -> None:
        while not self._stopping.wait(self._tick_seconds):
            self._round()
        self._round()

    def _round(self) -> None:
        try:
            for _ in range(len(self._queue)):
                self._send(self._queue.popleft())
            self._replay.serve()
        except Exception as error:  # routers lose a message; the engine continues
            self._log.log(logging.ERROR, "round", "KV events: a message failed", error)
        if self.num_dropped != self._drops_logged:
            self._drops_logged = self.num_dropped
            self._log.warning(
                "dropped", f"KV events: {self.num_dropped} messages dropped, the queue was full"
            )

    def _send(self, step: _Step) -> None:
        payload = self._encoder.encode(step.wall_seconds, step.changes)
        number = step.number.to_bytes(8, "big")
        self._sockets.stream.send_multipart([self._topic, number, payload], zmq.NOBLOCK)
        self._replay.keep(number, payload)
