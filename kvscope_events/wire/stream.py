"""The reading side of one stream, without sockets: what to deliver, what to request, what is lost.

Batches are delivered in order and once. A missing one is requested; where the publisher no longer
has it, reading continues at the next batch that has the whole state. A new session is read from the
oldest batch that its publisher holds, but never from before a batch that has a Hello.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kvscope_events.wire.frame import (
    HAS_HELLO,
    HAS_STATE,
    Frame,
    FrameError,
    FrameKind,
    RequestKind,
)

RETRY_NS = 250_000_000
"""Time after which an unanswered request is repeated; a publisher's tick takes 20 ms."""
SNAPSHOT_RETRY_NS = 2_000_000_000
"""The same for a snapshot, which costs the engine more, and which an idle one is slow to make."""
REMEMBERED_SESSIONS = 64
"""Sessions known to have ended: enough for every restart within a reader's memory."""


class Delivery(NamedTuple):
    """A batch, still encoded, and the number of batches missing just before it."""

    session: bytes
    seq: int
    flags: int
    payload: bytes
    lost: int


class Stream:
    """Orders one stream. `deliver` returns False without room: the batch is requested later."""

    def __init__(self, deliver: Callable[[Delivery], bool]) -> None:
        self._deliver = deliver
        self.session: bytes | None = None
        self.gaps = 0
        """Times that a batch was missing, whether it came later or not."""
        self.lost = 0
        """Batches that never came."""
        self.snapshot_wanted = False
        """Set by the caller when a batch cannot be read; the next one with the state clears it."""
        self._ended: deque[bytes] = deque(maxlen=REMEMBERED_SESSIONS)
        self._asked_ns: int | None = None
        self._gone = False  # the batch expected next will not come
        self._begin(None)

    @property
    def behind(self) -> bool:
        """Whether batches are known to exist that have not been delivered."""
        return self._expected < self._head

    def on_stream(self, frames: Iterable[Frame]) -> None:
        """Take frames sent to all readers; raises FrameError for those of a session that ended."""
        for frame in frames:
            if frame.session != self.session:
                if frame.session in self._ended:
                    raise FrameError("second_publisher", "two publishers take turns")
                self._begin(frame.session)
            self._on_frame(frame)

    def on_answer(self, frames: Iterable[Frame]) -> None:
        """Take frames that this reader requested."""
        expected = self._expected
        for frame in frames:
            if frame.session != self.session:
                return
            if frame.kind == FrameKind.GONE:
                self._gone = self._gone or frame.seq == self._expected
            elif frame.kind == FrameKind.BATCH and not self._offer(frame, may_skip=True):
                break
        if self._expected != expected:
            self._asked_ns = None  # there may be more, at once

    def forgive(self) -> None:
        """Accept any session from now on, also one that had ended: the present one is silent."""
        self._ended.clear()

    def request(self, now_ns: int) -> tuple[RequestKind, int] | None:
        """The request to send to the publisher now; None: nothing, or nothing yet."""
        snapshot = self.snapshot_wanted and not self.behind
        if self.session is None or not (self.behind or snapshot):
            return None
        pause_ns = SNAPSHOT_RETRY_NS if snapshot else RETRY_NS
        if self._asked_ns is not None and now_ns - self._asked_ns < pause_ns:
            return None
        self._asked_ns = now_ns
        if snapshot:
            return RequestKind.SNAPSHOT, 0
        return RequestKind.REPLAY, self._expected

    def _begin(self, session: bytes | None) -> None:
        if self.session is not None:
            self._ended.append(self.session)
        self.session = session
        self._expected = 0
        self._head = 0  # follows the newest batch known to exist
        self._joined = False  # a batch has been delivered
        self._gone = False
        self._full = False  # a batch had to wait for room
        self._gap_counted = False  # the hole that is being filled
        self._asked_ns = None
        self.snapshot_wanted = False

    def _on_frame(self, frame: Frame) -> None:
        if frame.kind == FrameKind.HEARTBEAT:
            self._learn(frame.seq)
        elif frame.kind == FrameKind.BATCH:
            if frame.seq != self._expected or self._full:
                self._learn(frame.seq + 1)
            # A state may be too large for the publisher's ring, so it has to be taken here.
            if not self._full or (self._gone and frame.flags & HAS_STATE):
                self._offer(frame, may_skip=self._gone)

    def _learn(self, head: int) -> None:
        if head <= self._head:
            return
        if self._joined and not self.behind and not self._full:
            self.gaps += 1
            self._gap_counted = True
        self._head = head

    def _offer(self, frame: Frame, *, may_skip: bool) -> bool:
        """Deliver the frame if it is the next, or the first after a gap; False: no room."""
        missing = frame.seq - self._expected
        if missing < 0 or (missing and not (may_skip and frame.flags & HAS_STATE)):
            return True
        if self._joined or frame.flags & HAS_HELLO:
            lost = missing if self._joined else 0
            delivery = Delivery(frame.session, frame.seq, frame.flags, frame.payload, lost)
            if not self._deliver(delivery):
                self._full = True
                self._head = max(self._head, frame.seq + 1)
                return False
            self._joined = True
            self._lose(lost)
            if frame.flags & HAS_STATE:
                self.snapshot_wanted = False
        elif missing:
            return True
        else:
            self.snapshot_wanted = True
        self._full = self._gone = False
        self._expected = frame.seq + 1
        self._head = max(self._head, self._expected)
        if not self.behind:
            self._gap_counted = False
        return True

    def _lose(self, batches: int) -> None:
        """A reader that only waited for room has counted no gap yet."""
        if batches:
            self.lost += batches
            self.gaps += not self._gap_counted
            self._gap_counted = False
