"""One engine's frames for all who look at it, from a thread that ends some time after the last.

A viewer that does not read loses its frames, hears so, and takes a new snapshot. The others
and the engine do not notice.
"""

import asyncio
import json
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager

from kvscope_exporter.live.documents import BlockDocument, SequenceDocument
from kvscope_exporter.live.view import UnknownHereError, View
from kvscope_exporter.targets.target import Target

logger = logging.getLogger(__name__)

FRAME_SECONDS = 0.1
LEAST_REST_SECONDS = 0.02
"""Between two frames, however long one takes to make."""
LINGER_SECONDS = 30.0
"""An engine is followed this long after its last reader, whose page may just be loading again."""
QUEUED_FRAMES = 32
"""Frames that wait for one viewer, over three seconds."""
QUIET_SECONDS = 5.0
"""A viewer hears something at least this often, so that one who has left is noticed."""

Find = Callable[[], AbstractContextManager[Target]]
"""The engine, which stays as it is inside the block. Raises UnknownHereError."""


class Viewer:
    """One stream of events; made and read on an event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._waiting: deque[bytes] = deque()
        self._lock = threading.Lock()
        self.times_behind = 0
        """Times that it lost frames."""

    def put(self, event: bytes) -> None:
        """Queue an event; for any thread."""
        with self._lock:
            if len(self._waiting) >= QUEUED_FRAMES:
                self._waiting.clear()
                self._waiting.append(_event("behind", b"{}"))
                self.times_behind += 1
            self._waiting.append(event)
        try:
            self._loop.call_soon_threadsafe(self._arrived.set)
        except RuntimeError:
            return  # the server has just stopped, and with it this viewer

    async def events(self) -> AsyncGenerator[bytes]:
        """Until the client leaves, which cancels this."""
        yield b"retry: 1000\n\n"
        while True:
            try:
                await asyncio.wait_for(self._arrived.wait(), QUIET_SECONDS)
            except TimeoutError:
                yield b": quiet\n\n"
            self._arrived.clear()
            while True:
                with self._lock:
                    if not self._waiting:
                        break
                    event = self._waiting.popleft()
                yield event


class Broadcast:
    """For any thread."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._lock = threading.Lock()
        self._viewers: set[Viewer] = set()
        self._view: View | None = None
        self._thread: threading.Thread | None = None
        self._wanted_until = 0.0
        self._problem: str | None = None

    @property
    def num_viewers(self) -> int:
        return len(self._viewers)

    @property
    def following(self) -> bool:
        """Whether the engine is followed now."""
        return self._view is not None

    def join(self, viewer: Viewer) -> None:
        with self._lock:
            self._viewers.add(viewer)
            self._problem = None
            self._run_on()

    def leave(self, viewer: Viewer) -> None:
        with self._lock:
            self._viewers.discard(viewer)

    def snapshot(self, *, blocks: bool = True) -> bytes:
        """Everything there is, or all but the blocks. Raises UnknownHereError."""
        with self._lock, self._find() as target:
            self._run_on()
            frame, snapshot = self._view_of(target).snapshot(blocks=blocks)
            if frame is not None:
                self._deliver(_event("frame", frame))
        return snapshot

    def sequence(self, number: int) -> SequenceDocument | None:
        """Raises UnknownHereError."""
        with self._lock, self._find() as target:
            self._run_on()
            return self._view_of(target).sequence(number)

    def block(self, number: int) -> BlockDocument | None:
        """Raises UnknownHereError."""
        with self._lock, self._find() as target:
            self._run_on()
            return self._view_of(target).block(number)

    def _run_on(self) -> None:
        self._wanted_until = time.monotonic() + LINGER_SECONDS
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kvscope-live", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        began = time.monotonic()
        while self._turn():
            time.sleep(max(LEAST_REST_SECONDS, began + FRAME_SECONDS - time.monotonic()))
            began = time.monotonic()

    def _turn(self) -> bool:
        """Make one frame; False: it is no longer wanted."""
        with self._lock:
            now = time.monotonic()
            if self._viewers:
                self._wanted_until = now + LINGER_SECONDS
            if now >= self._wanted_until:
                self._close()
                self._thread = None
                return False
            try:
                with self._find() as target:
                    frame = self._view_of(target).frame()
                self._problem = None
            except UnknownHereError as error:
                self._report(str(error))
            except Exception:
                logger.exception("the live view failed")
                self._report("it failed here: the log of this process has the reason")
            else:
                if frame is not None:
                    self._deliver(_event("frame", frame))
        return True

    def _view_of(self, target: Target) -> View:
        if self._view is None or self._view.target is not target:
            number = 0 if self._view is None else self._view.frame_number
            self._close()
            self._view = View(target, number)
        return self._view

    def _close(self) -> None:
        view, self._view = self._view, None
        if view is not None:
            view.close()

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._deliver(_event("unknown", json.dumps({"reason": problem}).encode()))

    def _deliver(self, event: bytes) -> None:
        for viewer in self._viewers:
            viewer.put(event)


def _event(name: str, data: bytes) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)
