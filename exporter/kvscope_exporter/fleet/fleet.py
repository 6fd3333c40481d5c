"""Folds the streams of all sidecars, in the order of the wall clocks.

Streams are merged among what has arrived, so two replicas are out of step by at most the interval
between two questions. Nothing here depends on that: each replica says itself what it found.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, Literal, NamedTuple, TypeVar

from kvscope_events.throttle import Throttle
from kvscope_exporter.answers.projection import Position
from kvscope_exporter.fleet.replica import ContradictionError, OwnSteps, Replica, Space
from kvscope_exporter.state.fleet import Waterfall
from kvscope_exporter.state.fleet.asked import HORIZON
from kvscope_exporter.state.fleet.projected import EventsDocument, Part

MAX_REPLICAS = 1 << 10
MAX_SPACES = 32
"""Name spaces at a time; each takes memory for what its fleet was asked for."""
State = Literal["counted", "unknown", "incomparable", "doubled"]
STATES: tuple[State, ...] = ("counted", "unknown", "incomparable", "doubled")
logger = logging.getLogger(__name__)

BARRED_NS = 60_000_000_000
AT_ONCE = 40
"""Changes after which a page may be read: all of a second's would hold it up for half of one."""
PAUSE_SECONDS = 0.001
"""A lock that is taken again at once goes to no other thread."""
T = TypeVar("T")
Key = tuple[str, str, str]
"""Sidecar, server and engine."""
Change = tuple[int, Replica, Callable[[Replica, Any], None], Any]
"""A time, and what is to be called then, with the replica and the last of these."""
UNNAMED = (
    "its server does not say what the names of its blocks depend on; "
    "a vLLM says so with its first request"
)


class ListedReplica(NamedTuple):
    """A replica on some sidecar's list."""

    key: Key
    model_name: str
    state: State
    reason: str
    """The reason if it is not counted; otherwise empty."""
    steps: OwnSteps
    block_size: int = 0
    """Tokens; 0: not known."""


class Fleet:
    """For any thread."""

    def __init__(self, horizon: int = HORIZON, one_of: int = 1) -> None:
        """horizon: names remembered in each name space; see `asked`. one_of: see `Waterfall`."""
        self._horizon = horizon
        self.one_of = one_of
        self._folding = threading.Lock()
        """Held from the first change of an answer to its last."""
        self._lock = threading.Lock()
        self._spaces: dict[str, Space] = {}
        self._replicas: dict[Key, Replica] = {}
        self._left_out: dict[Key, ListedReplica] = {}
        self.contradictions: dict[str, int] = {}
        """By sidecar: answers of which a part could not be."""
        self.spent_ns = 0
        self._throttle = Throttle(time.monotonic_ns)
        self._barred: dict[Key, int] = {}
        """Replicas that contradicted themselves, with the time until which they are left out."""

    def positions(self, sidecar: str) -> dict[str, Position]:
        """The places in this sidecar's streams from which to continue."""
        with self._lock:
            return {
                replica.session: Position(replica.next_seq, replica.slot is None)
                for key, replica in self._replicas.items()
                if key[0] == sidecar and replica.next_seq is not None
            }

    def forget(self, sidecar: str) -> None:
        """A sidecar does not answer, or is no longer followed: its replicas are not known."""
        with self._folding, self._lock:  # the rest of an answer would bring them back
            for key in [key for key in self._replicas if key[0] == sidecar]:
                self._replicas.pop(key).lose()
            for key in [key for key in self._left_out if key[0] == sidecar]:
                del self._left_out[key]
            self._drop_spaces()

    def fold(self, documents: Sequence[tuple[str, EventsDocument]]) -> None:
        """Apply answers of sidecars, at most one of each."""
        with self._folding:
            with self._spending():
                changes: list[Change] = []
                for sidecar, document in documents:
                    for replica, part in self._parts(sidecar, document):
                        changes += _changes(replica, part)
                changes.sort(key=itemgetter(0))  # stable: each stream stays in its order
            failed: set[int] = set()
            for begin in range(0, len(changes), AT_ONCE):
                with self._spending():
                    self._apply(changes[begin : begin + AT_ONCE], failed)
                time.sleep(PAUSE_SECONDS)
            with self._spending():
                self._drop_spaces()

    def replicas(self) -> list[ListedReplica]:
        """All replicas, by their keys."""
        with self._lock:
            listed = dict(self._left_out)
            for key, replica in self._replicas.items():
                is_known = replica.slot is not None
                reason = "" if is_known else "its content is not known: it was lost, or comes next"
                state: State = "counted" if is_known else "unknown"
                model = replica.space.model_name
                size = replica.space.block_size
                listed[key] = ListedReplica(key, model, state, reason, replica.steps, size)
            return [listed[key] for key in sorted(listed)]

    def read(self, read: Callable[[Sequence[Space]], T]) -> T:
        """Reads the name spaces while nothing is folded."""
        with self._lock:
            return read(list(self._spaces.values()))

    @contextmanager
    def _spending(self) -> Iterator[None]:
        """Holds the state, and counts the time."""
        with self._lock:
            began_ns = time.perf_counter_ns()
            yield
            self.spent_ns += time.perf_counter_ns() - began_ns

    def _apply(self, changes: Sequence[Change], failed: set[int]) -> None:
        """failed: replicas of which nothing more is applied; grows."""
        for _, replica, apply, what in changes:
            if failed and id(replica) in failed:
                continue
            try:
                apply(replica, what)
            except ContradictionError as error:
                failed.add(id(replica))
                self._contradicts(replica, str(error))

    def _parts(self, sidecar: str, document: EventsDocument) -> Iterator[tuple[Replica, Part]]:
        unknown = {(sidecar, u.server, u.engine): u for u in document.unknown}
        keys = Counter((sidecar, part.server, part.engine) for part in document.parts)
        keys.update(unknown.keys())
        for key, engine in unknown.items():
            self._leave_out(key, engine.model_name, "unknown", engine.reason)
        for part in document.parts:
            key = (sidecar, part.server, part.engine)
            if keys[key] > 1:
                self._leave_out(key, part.model_name, "doubled", "two engines have these labels")
            elif (replica := self._replica_of(key, part)) is not None:
                yield replica, part
        for key in [key for key in self._replicas if key[0] == sidecar and key not in keys]:
            self._replicas.pop(key).lose()  # it is gone
        for key in [key for key in self._left_out if key[0] == sidecar and key not in keys]:
            del self._left_out[key]
            self._barred.pop(key, None)

    def _replica_of(self, key: Key, part: Part) -> Replica | None:
        """None: it is not counted."""
        replica = self._replicas.get(key)
        if replica is not None and replica.is_of(part):
            return replica
        elsewhere = next(
            (k for k, r in self._replicas.items() if r.session == part.session and k != key), None
        )
        if time.monotonic_ns() < self._barred.get(key, 0):
            self._leave_out(key, part.model_name, "unknown", "it contradicted itself")
        elif part.name_space is None:
            self._leave_out(key, part.model_name, "incomparable", UNNAMED)
        elif elsewhere is not None:
            where = "/".join(elsewhere)
            self._leave_out(key, part.model_name, "doubled", f"the same engine as {where}")
        elif len(self._replicas) >= MAX_REPLICAS or not self._has_room(part.name_space):
            reason = f"over {MAX_REPLICAS} replicas, or {MAX_SPACES} name spaces"
            self._leave_out(key, part.model_name, "unknown", reason)
        else:
            self._forget_one(key)
            self._left_out.pop(key, None)
            self._replicas[key] = replica = Replica(
                *key, part.session, self._space_of(part.name_space, part), part.num_blocks
            )
            return replica
        return None

    def _has_room(self, name_space: str) -> bool:
        return name_space in self._spaces or len(self._spaces) < MAX_SPACES

    def _space_of(self, name_space: str, part: Part) -> Space:
        space = self._spaces.get(name_space)
        if space is None:
            space = self._spaces[name_space] = Space(
                name_space=name_space,
                model_name=part.model_name,
                block_size=part.block_size,
                hash_algorithm=part.hash_algorithm,
                waterfall=Waterfall(self._horizon, one_of=self.one_of),
            )
        space.bytes_per_block = part.bytes_per_block or space.bytes_per_block
        return space

    def _contradicts(self, replica: Replica, problem: str) -> None:
        key = (replica.sidecar, replica.server, replica.engine)
        self.contradictions[replica.sidecar] = self.contradictions.get(replica.sidecar, 0) + 1
        if self._throttle.allow(replica.sidecar):
            logger.warning("%s: its answer contradicts itself: %s", "/".join(key), problem)
        self._forget_one(key)
        self._barred[key] = time.monotonic_ns() + BARRED_NS

    def _forget_one(self, key: Key) -> None:
        replica = self._replicas.pop(key, None)
        if replica is not None:
            replica.lose()

    def _leave_out(self, key: Key, model_name: str, state: State, reason: str) -> None:
        self._forget_one(key)
        self._left_out[key] = ListedReplica(key, model_name, state, reason, OwnSteps())

    def _drop_spaces(self) -> None:
        """Beyond the limit, name spaces without replicas make room for others."""
        used = {replica.space.name_space for replica in self._replicas.values()}
        for name in [name for name in self._spaces if name not in used]:
            if len(self._spaces) < MAX_SPACES:
                break
            del self._spaces[name]


def _changes(replica: Replica, part: Part) -> Iterator[Change]:
    """Changes by one stream, at times that do not fall."""
    at_ns, expected = 0, replica.next_seq
    if expected is not None and part.is_gap:
        yield at_ns, replica, _lose, None
        expected = None
    for moment in part.moments:
        at_ns = max(at_ns, moment.wall_ns)
        if expected not in (None, moment.seq):
            yield at_ns, replica, _skip, None
        yield at_ns, replica, Replica.apply, moment
        expected = moment.seq + 1
    if expected not in (None, part.next_seq):
        yield at_ns, replica, _skip, None
    replica.next_seq = part.next_seq
    if part.held is not None:
        yield at_ns, replica, _hold_if_unknown, part.held


def _hold_if_unknown(replica: Replica, held: bytes) -> None:
    if replica.slot is None:
        replica.hold(held)


def _lose(replica: Replica, _nothing: None) -> None:
    replica.lose()


def _skip(_replica: Replica, _nothing: None) -> None:
    raise ContradictionError("it skips or repeats moments")
