"""Recorded lives of a real pool: conversations in a tree of prompts, resets, losses of batches.

A record is a list of batches, and LOST where batches are missing. Times are whole quarters of a
second, so that every sum of ages is exact in binary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from hypothesis import strategies as st

from kvscope_engine.block_pool import BlockPool
from kvscope_events.bus import EventBus
from kvscope_events.events import Batch, BlockCopied, PrefixLookup
from kvscope_exporter.state import Cache

BLOCK_SIZE = 4
QUARTER_NS = 250_000_000
LOST = None
Record = list[Batch | None]


def name_of(path: Sequence[int]) -> bytes:
    """A name for a whole beginning of a prompt, as evenly spread as a real one."""
    return sha256(bytes(path)).digest()[:16]


def names_of(path: Sequence[int]) -> list[bytes]:
    return [name_of(path[: end + 1]) for end in range(len(path))]


@dataclass
class Life:
    """Sequences on a small pool; `record` is what an observer heard of it."""

    num_blocks: int = 10
    record: Record = field(default_factory=list)
    now_ns: int = 0

    def __post_init__(self) -> None:
        bus = EventBus()
        self._events = bus.subscribe(queue_batches=1)
        self.pool = BlockPool(self.num_blocks, BLOCK_SIZE, bus, reserved=1)
        self._emit, self._flush = bus.emit, bus.flush
        self._tables: list[list[int]] = []
        self._paths: list[list[int]] = []
        self._heard = True
        self.hear()

    def hear(self) -> None:
        """End a batch; it is recorded unless it is lost."""
        self._flush()
        taken = self._events.take()
        if taken is not None and self._heard:
            batch = taken[0]
            events = list(batch.events)
            seq = len(self.record)
            self.record.append(Batch(seq, self.now_ns, events, 0, self.now_ns))

    def admit(self, path: list[int], resumed: bool = False, loaded_tokens: int = 0) -> None:
        """A sequence with these full blocks asks, and runs if there is room.

        loaded_tokens: behind its hits it has at most this many from elsewhere.
        """
        if self.ask(names_of(path), resumed, loaded_tokens):
            self._paths.append(path)

    @property
    def num_running(self) -> int:
        return len(self._tables)

    def ask(self, names: list[bytes], resumed: bool = False, loaded_tokens: int = 0) -> bool:
        """The same by names; whether there was room."""
        prefix = self.pool.find(names)
        wanted = len(names) + 1 - len(prefix)
        if wanted > self.pool.num_available - self.pool.num_cached_among(prefix):
            return False
        number = len(self._tables)
        tokens = len(names) * BLOCK_SIZE + 1
        loaded = min(loaded_tokens, BLOCK_SIZE * (len(names) - len(prefix)))
        self._emit(PrefixLookup(number, tokens, names, len(prefix), resumed, loaded))
        if prefix:
            self.pool.share(number, prefix)
        table = prefix + self.pool.allocate(number, wanted, "prefill")
        first = len(prefix)
        if first < len(names):
            parent = names[first - 1] if first else None
            self.pool.cache(number, table[first : len(names)], names[first:], parent)
        self._tables.append(table)
        return True

    def grow(self, index: int) -> None:
        """A running sequence fills its last block, its own copy of it, and takes another."""
        if not self._tables or self.pool.num_available < 2:
            return
        index %= len(self._tables)
        table, path = self._tables[index], self._paths[index]
        if self.pool.is_shared(table[-1]):
            source = table[-1]
            table[-1:] = self.pool.allocate(index, 1, "cow")
            self._emit(BlockCopied(index, source, table[-1]))
            self.pool.release(index, [source], "cow")
        path = self._paths[index] = [*path, 9]
        name = name_of(path)
        table += self.pool.allocate(index, 1, "decode")
        self.pool.cache(index, [table[len(path) - 1]], [name], name_of(path[:-1]))

    def fork(self, index: int) -> None:
        """A running sequence gets a sample beside it, which shares its last block, too."""
        if self._tables:
            index %= len(self._tables)
            table = self._tables[index].copy()
            self.pool.share(len(self._tables), table.copy(), "fork")
            self._tables.append(table)
            self._paths.append(self._paths[index])

    def finish(self, index: int) -> None:
        """A running sequence gives its blocks back."""
        if self._tables:
            index %= len(self._tables)
            self.pool.release(index, self._tables.pop(index), "finished")
            if self._paths:
                self._paths.pop(index)

    def reset(self) -> None:
        self.pool.reset()

    def lose(self) -> None:
        """From now on nothing is heard."""
        self.hear()
        if self._heard:
            self.record.append(LOST)
        self._heard = False

    def hear_again(self) -> None:
        """Batches arrive again, but what was lost is not known."""
        self.hear()
        self._heard = True

    def synchronise(self) -> None:
        self.hear_again()
        self._emit(self.pool.snapshot())
        self.hear()

    def wait(self, quarters: int) -> None:
        self.hear()
        self.now_ns += quarters * QUARTER_NS

    def do(self, name: str, *arguments: Any) -> None:
        getattr(self, name)(*arguments)


_PATHS = st.lists(st.integers(0, 1), min_size=1, max_size=5)
_ADMIT = st.tuples(st.just("admit"), _PATHS)
_LOAD = st.tuples(st.just("admit"), _PATHS, st.just(False), st.integers(1, 4 * BLOCK_SIZE))
_FINISH = st.tuples(st.just("finish"), st.integers(0, 5))
_GROW = st.tuples(st.just("grow"), st.integers(0, 5))
_FORK = st.tuples(st.just("fork"), st.integers(0, 5))
_RESUME = st.tuples(st.just("admit"), _PATHS, st.just(True))
_WAIT = st.tuples(st.just("wait"), st.sampled_from([1, 3, 4, 40, 240, 2400, 20_000]))
_ACTIONS = st.one_of(
    *(_ADMIT, _ADMIT, _ADMIT, _LOAD, _FINISH, _FINISH, _FINISH, _GROW, _FORK, _RESUME, _WAIT)
)
_CALLS = st.lists(_ACTIONS, max_size=10)
_GAPS = st.sampled_from([(), ("lose", "synchronise"), ("lose", "hear_again", "synchronise")])


@st.composite
def lives(draw: st.DrawFn) -> Life:
    """A life of a few hundred events at most, recorded to its end, which may be in a gap."""
    life = Life(num_blocks=draw(st.sampled_from([6, 8, 12])))
    for _ in range(draw(st.integers(1, 3))):
        fewest = draw(st.sampled_from([0, 10, 30]))
        for action in draw(st.lists(_ACTIONS, min_size=fewest, max_size=40)):
            life.do(*action)
        if draw(st.sampled_from([False, False, True])):
            life.reset()
        for change in draw(_GAPS):
            life.do(change)
            for action in draw(_CALLS):
                life.do(*action)
    life.hear()
    return life


def folded(record: Record, **options: Any) -> Cache:
    """The fold after a record."""
    cache = Cache(**options)
    for batch in record:
        if batch is LOST:
            cache.on_gap()
        else:
            cache.on_batch(batch)
    return cache
