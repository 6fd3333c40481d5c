"""One publisher's stream, without sockets: order, requests for missing messages, sessions.

Servers number their messages from 0 and reveal nothing else about themselves: no session, no
heartbeat, no snapshot. Messages are delivered in order and once. Missing ones are requested from
the server's replay, if it has one. A request begins with the last message delivered: if that has
changed, or the server does not have it, another process is publishing, and everything starts over.

A number that goes back means the same, unless it is a duplicate or late. After a lost connection
nothing is taken for granted: without a replay the state is unknown until the numbers have started
at 0 again.
"""

from collections.abc import Callable
from typing import NamedTuple

from kvscope_exporter.sources.kv_events.recent import RecentNumbers

PENDING_BYTES = 16 << 20
"""Messages held back until earlier ones come; those that do not fit are requested again."""
REORDER_NS = 250_000_000
"""Time for which a missing message is awaited without a replay."""
ANSWER_NS = 2_000_000_000
"""Silence after which a request counts as lost; servers answer within 0.1 s."""
QUIET_NS = 2_000_000_000
"""Silence after which the replay is asked whether there are later messages."""
CONFIRM_NS = 30_000_000_000
"""Time after which it is asked again while the silence lasts."""
MAX_TRIES = 3
"""Requests without progress after which missing messages count as lost."""
CONTEST_NS = 5_000_000_000
"""Time for which a second publisher is remembered after its last message."""
_ENTRY_BYTES = 200


class Delivery(NamedTuple):
    """A message in its turn."""

    session: int  # grows when another process publishes
    payload: bytes
    lost: int  # messages missing just before it
    broken: bool  # its predecessor is missing or unknown, and with it the state it builds on


class Tracker:
    """`deliver` returns False without room: the message is requested again later."""

    # State of a session; see `_begin`.
    _expected: int
    _full: bool
    _answered: bool
    _accepts_any: bool
    _confirmed_ns: int | None
    _rebuild_ns: int | None

    def __init__(self, deliver: Callable[[Delivery], bool], *, replays: bool) -> None:
        self._deliver = deliver
        self._replays = replays
        self.session = 0
        """0: no publisher has been heard."""
        self.gaps = 0
        """Times that messages were missing, whether they came later or not."""
        self.lost = 0
        """Messages that never came."""
        self.intruders = 0
        """Messages of a second publisher, which are left out."""
        self._former = 0  # the number that the former publisher would send next
        self._former_ns = self._heard_ns = 0  # when it was last heard, and when any was
        self._intruded_ns: int | None = None
        self._was_cut = False
        self._recent = RecentNumbers()
        self._pending: dict[int, bytes] = {}
        self._pending_bytes = 0
        self._asked_ns: int | None = None  # the request that is being answered, or its last answer
        self._begin(0)

    @property
    def behind(self) -> bool:
        """Whether messages are known to exist, or may exist, that have not been delivered."""
        return self._head >= self._expected or self._unverified or self._wants_answer

    @property
    def certain(self) -> bool:
        """Whether everything that the publisher is known to have sent was delivered."""
        return not self.behind and not self._doubtful

    @property
    def waits(self) -> bool:
        """Whether a request, or the end of waiting for a late message, will soon be due."""
        if not self._replays:
            return self._missed_ns is not None or self._full
        return self.behind and not self._was_cut

    def contested(self, now_ns: int) -> bool:
        """Whether two publishers have been heard lately."""
        return self._intruded_ns is not None and now_ns - self._intruded_ns <= CONTEST_NS

    def on_connected(self) -> None:
        """A publisher is connected, perhaps not the same as before."""
        if not self.session:
            self._begin(1)
        elif self._was_cut:
            self._unverified = self._expected > 0
            self._wants_answer = self._replays
        self._was_cut = False
        self._asked_ns = None
        self._ignoring = self._rebuilding = False
        self._tries = 0

    def on_disconnected(self) -> None:
        """Pending messages cannot be distinguished from those of the next publisher."""
        self._was_cut = True
        if not self._replays:
            self._give_up()
        self._forget_pending()
        self._head = self._expected - 1

    def on_live(self, seq: int, payload: bytes, now_ns: int) -> None:
        """Take a message of the stream."""
        if not self.session:
            self._begin(1)
        if seq < self._expected:
            if self._recent.explains(seq, payload):
                return
            self._begin(self.session + 1)
        elif self._unverified and not self._replays:
            self._unverified = False
            self._skip(seq)
        elif self._is_of_former(seq, now_ns):
            return
        self._heard_ns = now_ns
        if self._accepts_any:
            self._accepts_any = False
            if seq > self._expected:
                self._skip(seq)
        self._confirmed_ns = None
        if seq == self._expected and not self._unverified and not self._full:
            self._offer(payload)
            self._drain()
        else:
            self._hold(seq, payload, now_ns)

    def on_answer(self, seq: int, payload: bytes, now_ns: int) -> None:
        """Take a message of a replay."""
        if self._asked_ns is None:
            return
        self._asked_ns = now_ns
        is_first, self._answered = not self._answered, True
        if self._rebuilding:
            self._rebuild(seq)
        elif is_first and seq == self._expected - 1:
            if self._recent.is_same(seq, payload):
                self._unverified = False
            else:
                self._begin(self.session + 1)
            return
        if self._ignoring or self._full or seq < self._expected:
            return
        if is_first and (self._unverified or seq > self._expected):
            self._unverified = False
            self._skip(seq)  # the server no longer has the earlier ones
        if seq == self._expected:
            self._offer(payload)
        else:
            self._hold(seq, payload, now_ns)  # one was lost on the way

    def on_end(self, now_ns: int) -> None:
        """Take the end of a replay."""
        if self._asked_ns is None:
            return
        self._asked_ns = None
        self._rebuilding = False
        if self._ignoring:
            self._ignoring = False
            return
        if self._unverified and not self._answered and self._head < self._expected:
            self._begin(self.session + 1)  # it lacks our last message: a new process
            return
        if not self._unverified:
            self._wants_answer = False
            self._drain()
        if self.behind:
            self._fail()
        else:
            self._doubtful = False

    def request(self, now_ns: int, *, has_room: bool) -> int | None:
        """The number to request messages from now; None: nothing, or not yet."""
        if self._asked_ns is not None or not has_room:
            return None
        if not self.behind and self._may_rebuild(now_ns):
            self._rebuilding = True
        elif not self.behind and not self._is_quiet(now_ns):
            return None
        if self._full:
            self._full = False
            if not self._replays:
                self._give_up()
        if not self._replays:
            if self._missed_ns is not None and now_ns - self._missed_ns > REORDER_NS:
                self._give_up()
            return None
        if not self.session or self._was_cut:
            return None
        self._asked_ns = now_ns
        self._answered = False
        self._confirmed_ns = now_ns
        return 0 if self._rebuilding else max(0, self._expected - 1)

    def timed_out(self, now_ns: int) -> bool:
        """Whether a request is lost; its late answers must no longer reach us."""
        if self._asked_ns is None or now_ns - self._asked_ns <= ANSWER_NS:
            return False
        self._asked_ns = None
        self._ignoring = self._rebuilding = False
        if self.behind:
            self._fail()
        return True

    def _may_rebuild(self, now_ns: int) -> bool:
        """Whether to ask a replay that did not answer for the whole history again."""
        if not self._gave_up or not self._replays or self._was_cut:
            return False
        if self._rebuild_ns is None or now_ns < self._rebuild_ns:
            self._rebuild_ns = self._rebuild_ns or now_ns + CONFIRM_NS
            return False
        self._rebuild_ns = now_ns + CONFIRM_NS
        return True

    def _rebuild(self, seq: int) -> None:
        """Take the first message of a history, if it is complete: everything is read once more."""
        self._rebuilding = self._gave_up = False
        if seq:
            self._ignoring = True
            return
        self._begin(self.session + 1)
        self._former = 0  # it continues, and is not a second publisher
        self._ignoring = False
        self._answered = True

    def _is_quiet(self, now_ns: int) -> bool:
        """Whether a loss at the end may have gone unnoticed: no later number reveals it."""
        if not self._replays or not self.session:
            return False
        if self._confirmed_ns is None:
            return now_ns - self._heard_ns > QUIET_NS
        return now_ns - self._confirmed_ns > CONFIRM_NS

    def _is_of_former(self, seq: int, now_ns: int) -> bool:
        """Whether the former publisher continues beside the present one.

        A server takes longer to start than it is remembered here, so its numbers are never taken
        for those from before its restart.
        """
        if seq != self._former or seq <= self._expected or now_ns - self._former_ns > CONTEST_NS:
            return False
        self._former += 1
        self._former_ns = self._intruded_ns = now_ns
        self.intruders += 1
        return True

    def _begin(self, session: int) -> None:
        if session > 1:
            self._former, self._former_ns = self._expected, self._heard_ns
        self.session = session
        self._expected = 0
        self._head = -1  # highest number that is known to exist
        self._joined = False  # a message has been delivered
        self._doubtful = True  # there may be more, unannounced
        self._broken = False
        self._lost = 0
        self._unverified = False  # after a lost connection it may be another process
        self._wants_answer = self._replays and session > 0
        self._accepts_any = not self._replays
        self._full = False  # a message found no room
        self._missed_ns: int | None = None
        self._answered = False
        self._ignoring = self._asked_ns is not None  # the answer is for former numbers
        self._gave_up = self._rebuilding = False  # messages, on a replay that did not answer
        self._rebuild_ns = None
        self._gap_counted = False
        self._confirmed_ns = None  # replay asked, and nothing heard since
        self._tries = 0
        self._recent.clear()
        self._forget_pending()

    def _offer(self, payload: bytes) -> None:
        seq = self._expected
        if not self._deliver(Delivery(self.session, payload, self._lost, self._broken)):
            self._full = True
            self._head = max(self._head, seq)
            self._count_gap()
            self._forget_pending()
            return
        self._recent.add(seq, payload)
        self._expected = seq + 1
        self._head = max(self._head, seq)
        self._joined = True
        self._doubtful = False
        self._wants_answer = self._wants_answer and self._asked_ns is not None
        self._lost, self._broken = 0, False
        self._tries = 0
        if self._head == seq:
            self._missed_ns = None
            self._gap_counted = False

    def _hold(self, seq: int, payload: bytes, now_ns: int) -> None:
        if self._joined and not self.behind:
            self._count_gap()
        if self._missed_ns is None:
            self._missed_ns = now_ns
        self._head = max(self._head, seq)
        size = len(payload) + _ENTRY_BYTES
        if self._full or seq in self._pending or self._pending_bytes + size > PENDING_BYTES:
            return
        self._pending[seq] = payload
        self._pending_bytes += size

    def _drain(self) -> None:
        while not self._full and self._expected in self._pending:
            payload = self._pending.pop(self._expected)
            self._pending_bytes -= len(payload) + _ENTRY_BYTES
            self._offer(payload)

    def _forget_pending(self) -> None:
        self._pending.clear()
        self._pending_bytes = 0

    def _fail(self) -> None:
        self._tries += 1
        if self._tries >= MAX_TRIES:
            self._give_up()

    def _give_up(self) -> None:
        """Continue with what is there; missing messages are lost. A replay that answered and broke
        off has one that cannot be read, at which it would break off each time."""
        self._gave_up = not self._answered
        self._tries = 0
        self._wants_answer = False
        self._missed_ns = None
        if self._unverified:
            self._unverified = False
            self._broken = True
        later = [seq for seq in self._pending if seq >= self._expected]
        if later:
            self._skip(min(later))
            self._drain()
        else:
            self._accepts_any = True
            self._doubtful = True
            self._head = self._expected - 1

    def _skip(self, seq: int) -> None:
        """Continue at this number, without those before."""
        missing = seq - self._expected
        self._broken = True
        self._lost += missing
        if self._joined and missing:
            self.lost += missing
            self._count_gap()
        self._expected = seq
        for old in [number for number in self._pending if number < seq]:
            self._pending_bytes -= len(self._pending.pop(old)) + _ENTRY_BYTES

    def _count_gap(self) -> None:
        self.gaps += not self._gap_counted
        self._gap_counted = True
