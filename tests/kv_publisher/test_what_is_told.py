"""The pool and the block tables tell a listener exactly which names can be found."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from engine.block_pool import BlockPool
from engine.content_listener import ContentListener
from engine.hashing import PrefixHasher, chain_seed
from engine.kv_manager import KVManager
from engine.request import SamplingParams, Sequence
from kvscope_events.bus import EventBus
from kvscope_events.events import BlockHash, EngineEvent
from tests.kv_publisher.listening import Router

BLOCK_SIZE = 2


class Tables:
    """A small pool whose sequences share prefixes, and the reports about it."""

    def __init__(self, num_blocks: int = 8, listener: ContentListener | None = None) -> None:
        self.bus = EventBus()
        self._events = self.bus.subscribe(queue_batches=1 << 16)
        self.pool = BlockPool(num_blocks, BLOCK_SIZE, self.bus, listener=listener)
        self.kv = KVManager(self.pool, self.bus)
        self.running: list[Sequence] = []
        self._started = 0

    def admit(self, prompt: list[int], salt: str = "") -> Sequence | None:
        """None: it does not fit."""
        self._started += 1
        sequence = Sequence(
            self._started,
            self._started,
            list(prompt),
            len(prompt),
            SamplingParams(max_tokens=8),
            PrefixHasher(chain_seed("m", salt=salt), BLOCK_SIZE),
            cache_salt=salt,
        )
        prefix = self.kv.find_prefix(sequence)
        if not self.kv.can_admit(sequence, prefix):
            return None
        self.kv.admit(sequence, prefix)
        self.running.append(sequence)
        return sequence

    def compute(self, sequence: Sequence, num_tokens: int) -> None:
        reached = min(sequence.num_computed_tokens + num_tokens, len(sequence.tokens))
        self.kv.commit(sequence, reached)

    def grow(self, sequence: Sequence, token: int) -> None:
        """Add a token to a computed sequence and compute it, if there is room."""
        self.compute(sequence, len(sequence.tokens))
        sequence.tokens.append(token)
        if not self.kv.can_grow(sequence):
            sequence.tokens.pop()
            return
        if self.kv.missing_blocks(sequence) > 0:
            self.kv.grow(sequence)
        self.compute(sequence, 1)

    def release(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.kv.release(sequence, "finished")

    @property
    def findable(self) -> set[BlockHash]:
        return {name for name in self.pool.snapshot().hashes if name is not None}

    def events(self) -> list[EngineEvent]:
        self.bus.flush()
        events: list[EngineEvent] = []
        while (taken := self._events.take()) is not None:
            events += taken[0].events
        return events


_TOKEN = st.integers(0, 1)
_SALTS = st.sampled_from(("", "", "s"))
_OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("admit"), st.lists(_TOKEN, min_size=1, max_size=9), _SALTS),
        st.tuples(st.just("compute"), st.integers(0, 7), st.integers(1, 5)),
        st.tuples(st.just("grow"), st.integers(0, 7), _TOKEN),
        st.tuples(st.just("release"), st.integers(0, 7), st.none()),
        st.tuples(st.just("reset"), st.none(), st.none()),
    ),
    max_size=50,
)


def act(tables: Tables, operation: tuple[object, ...]) -> None:
    match operation:
        case ("admit", list(prompt), str(salt)):
            tables.admit(prompt, salt)
        case ("reset", None, None):
            tables.pool.reset()
        case (str(kind), int(which), number) if tables.running:
            sequence = tables.running[which % len(tables.running)]
            if kind == "compute":
                assert isinstance(number, int)
                tables.compute(sequence, number)
            elif kind == "grow":
                assert isinstance(number, int)
                tables.grow(sequence, number)
            else:
                tables.release(sequence)


@given(_OPERATIONS)
def test_what_is_told_is_what_can_be_found_after_each_operation(
    operations: list[tuple[object, ...]],
) -> None:
    router = Router()
    tables = Tables(listener=router)
    for operation in operations:
        act(tables, operation)
        assert router.names == tables.findable
        for sequence in tables.running:
            for i in range(sequence.num_cached_blocks):
                name = sequence.hasher.names[i]
                assert router.tokens[name] == tuple(sequence.tokens[: (i + 1) * BLOCK_SIZE])
    tables.pool.check()


@given(_OPERATIONS)
def test_a_listener_changes_no_event_of_the_bus(operations: list[tuple[object, ...]]) -> None:
    heard, unheard = Tables(listener=Router()), Tables()
    threads = threading.active_count()
    for operation in operations:
        act(heard, operation)
        act(unheard, operation)
    assert heard.events() == unheard.events()
    assert threading.active_count() == threads


def test_a_name_is_told_once_however_many_blocks_have_it() -> None:
    router = Router()
    tables = Tables(num_blocks=6, listener=router)
    first, second = tables.admit([1, 2, 3, 4]), tables.admit([1, 2, 3, 4])
    assert first is not None
    assert second is not None
    tables.compute(first, 4)
    names = set(router.names)
    assert len(names) == 2
    tables.compute(second, 4)  # `Router` refuses a second time
    tables.release(first)
    tables.pool.allocate(9, 4, "prefill")
    assert router.names == names, "the first sequence's blocks went, the other's are there"
    tables.release(second)
    tables.pool.allocate(9, 2, "prefill")
    assert router.names == set()


def test_two_copies_that_go_together_are_removed_once() -> None:
    router = Router()
    tables = Tables(num_blocks=2, listener=router)
    first, second = tables.admit([1, 2]), tables.admit([1, 2])
    assert first is not None
    assert second is not None
    tables.compute(first, 2)
    tables.compute(second, 2)
    tables.release(first)
    tables.release(second)
    tables.pool.allocate(9, 2, "prefill")  # `Router` refuses a second time
    assert router.names == set()


def test_a_reset_of_an_idle_pool_clears_all() -> None:
    router = Router()
    tables = Tables(listener=router)
    sequence = tables.admit([1, 2, 3, 4])
    assert sequence is not None
    tables.compute(sequence, 4)
    tables.release(sequence)
    tables.pool.reset()
    assert (router.num_cleared, router.names) == (1, set())


def test_a_reset_beside_running_sequences_removes_what_they_do_not_hold() -> None:
    router = Router()
    tables = Tables(listener=router)
    running, ended = tables.admit([1, 2, 3]), tables.admit([5, 6, 7])
    assert running is not None
    assert ended is not None
    tables.compute(running, 3)
    tables.compute(ended, 3)
    tables.release(ended)
    tables.pool.reset()
    assert router.num_cleared == 0
    assert router.names == set(running.hasher.names[:1])


def test_the_salt_is_told_with_the_first_block_of_a_sequence_alone() -> None:
    router = Router()
    tables = Tables(listener=router)
    sequence = tables.admit([1, 2, 3, 4, 5], salt="tenant")
    assert sequence is not None
    tables.compute(sequence, 2)
    tables.compute(sequence, 3)
    assert router.salts == {sequence.hasher.names[0]: "tenant"}
    assert len(router.names) == 2
