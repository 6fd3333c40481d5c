"""A pool whose pages are counted, not numbered: ledger, forecast and page, from counts alone."""

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope_events.bus import Subscription
from kvscope_events.events import (
    EngineEvent,
    Hello,
    PagesAllocated,
    PagesCached,
    PagesEvicted,
    PagesLoaded,
    PagesReleased,
    PagesShared,
    PoolCounted,
    PoolCreated,
    RequestPreempted,
    SequenceAdded,
)
from kvscope_events.producers import LOAD_EVENTS, SGLANG_EVENTS, in_order
from kvscope_exporter.answers.preemptions import PREEMPTIONS
from kvscope_exporter.answers.question import UnknownError
from kvscope_exporter.answers.residency import RESIDENCY
from kvscope_exporter.machine.machine import Machine
from kvscope_exporter.state import Churn, Exhaustion, Ledger
from tests.exporter.page import families, make_exporter, put, value
from tests.exporter.stream import batch_of, hello, step

SGLANG = hello(server="sglang", tells=in_order(SGLANG_EVENTS))
PAGES = 40
POOL = PoolCreated(PAGES, 16, 2048)


@dataclass
class Model:
    """A pool of pages, each an object: who refers to it, and whether it can be found."""

    random: Random
    events: list[EngineEvent] = field(default_factory=list)
    findable: dict[int, bool] = field(default_factory=dict)  # by page in use
    owners: dict[int, list[int]] = field(default_factory=dict)  # by page: sequences
    made: int = 0

    def pages_of(self, sequence: int) -> list[int]:
        return [page for page, owners in self.owners.items() if sequence in owners]

    @property
    def private(self) -> list[int]:
        return [p for p, owners in self.owners.items() if owners and not self.findable[p]]

    @property
    def protected(self) -> list[int]:
        return [p for p, owners in self.owners.items() if owners and self.findable[p]]

    @property
    def cached(self) -> list[int]:
        return [p for p, owners in self.owners.items() if not owners]

    @property
    def free(self) -> int:
        return PAGES - len(self.owners)

    @property
    def references(self) -> int:
        return sum(map(len, self.owners.values()))

    def take(self, sequence: int, count: int, *, decode: bool) -> None:
        for _ in range(min(count, self.free)):
            self.made += 1
            self.owners[self.made], self.findable[self.made] = [sequence], False
            named = None if decode else sequence
            self.events.append(PagesAllocated(named, 1, "decode" if decode else "prefill"))

    def publish(self, sequence: int) -> None:
        pages = [page for page in self.pages_of(sequence) if not self.findable[page]]
        for page in pages:
            self.findable[page] = True
        self.events.append(PagesCached(sequence, len(pages)))

    def share(self, sequence: int) -> None:
        found = [page for page, findable in self.findable.items() if findable]
        others = [page for page in found if sequence not in self.owners[page]]
        pages = others[: self.random.randrange(4)]
        activated = sum(1 for page in pages if not self.owners[page])
        for page in pages:
            self.owners[page].append(sequence)
        self.events.append(PagesShared(sequence, len(pages), activated, "prefix_hit"))

    def release(self, sequence: int) -> None:
        cached = free = shared = 0
        for page in self.pages_of(sequence):
            self.owners[page].remove(sequence)
            if self.owners[page]:
                shared += 1
            elif self.findable[page]:
                cached += 1
            else:
                free += 1
                del self.owners[page], self.findable[page]
        self.events.append(PagesReleased(sequence, cached, free, shared, "finished"))

    def evict(self) -> None:
        gone = self.cached[: self.random.randrange(1, 4)]
        for page in gone:
            del self.owners[page], self.findable[page]
        self.events.append(PagesEvicted(len(gone), "capacity"))

    def load(self) -> None:
        count = min(self.free, self.random.randrange(3))
        for _ in range(count):
            self.made += 1
            self.owners[self.made], self.findable[self.made] = [], True
        self.events.append(PagesLoaded(count, "host"))

    def act(self) -> None:
        sequence = self.random.randrange(5)
        self.random.choice(
            (
                lambda: self.take(sequence, self.random.randrange(1, 6), decode=False),
                lambda: self.take(sequence, 1, decode=True),
                lambda: self.publish(sequence),
                lambda: self.share(sequence),
                lambda: self.release(sequence),
                self.evict,
                self.load,
            )
        )()

    def snapshot(self) -> PoolCounted:
        parts = (len(self.private), len(self.protected), len(self.cached))
        return PoolCounted(PAGES, 16, 2048, 0, *parts, self.references)

    def heartbeat(self) -> EngineEvent:
        active = len(self.private) + len(self.protected)
        return step(
            active_blocks=active,
            cached_blocks=len(self.cached),
            free_blocks=self.free,
            slots_filled=None,
            protected_blocks=len(self.protected),
        )


@given(st.integers(0, 2**32), st.integers(0, 20), st.integers(1, 60))
def test_the_ledger_counts_what_a_pool_of_pages_holds(seed: int, gap: int, actions: int) -> None:
    model, ledger = Model(Random(seed)), Ledger()
    ledger.on_batch(batch_of(SGLANG, POOL))
    for number in range(actions):
        model.act()
        if number == gap:  # batches are lost, and a snapshot follows
            ledger.on_gap()
            assert not ledger.known
            model.events = [model.snapshot()]
        ledger.on_batch(batch_of(*model.events, model.heartbeat()))
        model.events = []
        ledger.check()
        assert ledger.known
        assert ledger.imbalance == 0
        assert ledger.num_active == len(model.private) + len(model.protected)
        assert (ledger.num_cached, ledger.num_free) == (len(model.cached), model.free)
        assert ledger.num_deduplicated == model.references - ledger.num_active
    assert ledger.num_shared is None


@pytest.mark.parametrize(
    "event",
    [
        PagesAllocated(1, PAGES + 1, "prefill"),
        PagesShared(1, 1, 1, "prefix_hit"),
        PagesCached(1, 1),
        PagesReleased(1, 1, 0, 0, "finished"),
        PagesReleased(1, 0, 1, 0, "finished"),
        PagesEvicted(1, "capacity"),
        PagesLoaded(PAGES + 1, "host"),
    ],
)
def test_an_event_that_takes_more_pages_than_there_are_is_a_contradiction(
    event: EngineEvent,
) -> None:
    ledger = Ledger()
    ledger.on_batch(batch_of(SGLANG, POOL, event))
    ledger.check()
    assert ledger.imbalance == 1


def test_a_snapshot_without_references_leaves_sharing_unknown() -> None:
    ledger = Ledger()
    ledger.on_batch(batch_of(SGLANG, PoolCounted(PAGES, 16, 0, 0, 3, 2, 1)))
    assert (ledger.num_active, ledger.num_cached) == (5, 1)
    assert ledger.num_deduplicated is None


def test_another_session_with_numbered_blocks_is_no_longer_counted() -> None:
    ledger = Ledger()
    ledger.on_batch(batch_of(SGLANG, POOL, PagesAllocated(1, 3, "prefill")))
    ledger.on_batch(batch_of(hello(), POOL))
    assert not ledger.is_counted
    assert (ledger.num_active, ledger.num_shared) == (0, 0)


def test_causes_of_evicted_pages_are_counted() -> None:
    churn = Churn()
    churn.on_batch(
        batch_of(
            *(SGLANG, PoolCounted(PAGES, 16, 0, 0, 0, 0, 0)),
            *(PagesEvicted(3, "capacity"), PagesEvicted(1, "reset"), PagesEvicted(2, "capacity")),
        )
    )
    assert churn.evictions == {"capacity": 5, "reset": 1, "ordered": 0}


def test_a_running_sequence_commits_the_pages_that_it_may_still_take() -> None:
    exhaustion = Exhaustion()
    exhaustion.on_batch(
        batch_of(
            *(SGLANG, POOL, SequenceAdded(1, 1, 32, 65)),  # 6 pages of 16 at its end
            PagesAllocated(1, 2, "prefill"),
            step(running=1, active_blocks=2, emitted=[1], first_tokens=[1], slots_filled=None),
        )
    )
    assert exhaustion.committed_blocks == 6
    decodes = [step(running=1, active_blocks=3, emitted=[1], slots_filled=None)] * 16
    exhaustion.on_batch(batch_of(PagesAllocated(None, 1, "decode"), *decodes))
    assert exhaustion.committed_blocks == 6
    exhaustion.on_batch(
        batch_of(
            PagesReleased(1, 0, 3, 0, "preempted"),
            RequestPreempted(1, 1, "recompute", "out_of_blocks", 48, 3, 0),
            step(waiting=1, slots_filled=None),
        )
    )
    assert exhaustion.committed_blocks == 0


def shown(subscription: Subscription, *events: EngineEvent, who: Hello = SGLANG) -> None:
    put(subscription, 0, 10**18, who, POOL, *events)


def test_the_page_shows_counts_and_leaves_out_what_needs_numbers() -> None:
    exporter, subscription = make_exporter()
    shown(
        subscription,
        *(PagesAllocated(1, 6, "prefill"), PagesCached(1, 4), PagesReleased(1, 4, 2, 0, "aborted")),
        step(cached_blocks=4, free_blocks=36, slots_filled=None),
    )
    assert value(exporter, "kvscope_kv_blocks", state="cached") == 4
    assert value(exporter, "kvscope_kv_resident_ratio") == 0.1
    assert value(exporter, "kvscope_kv_ledger_imbalance_blocks") == 0
    assert value(exporter, "kvscope_kv_committed_blocks") == 0
    absent = ("shared_blocks", "held_blocks", "allocation_failures")
    assert not families(exporter).keys() & {f"kvscope_kv_{name}" for name in absent}
    assert not any("residency" in name or "idle" in name for name in families(exporter))


def test_a_question_that_needs_numbers_says_what_is_missing() -> None:
    exporter, subscription = make_exporter()
    shown(subscription, step(slots_filled=None))
    families(exporter)
    target = exporter.targets[0]
    assert target.answer(PREEMPTIONS, Machine()).preemptions == []
    with pytest.raises(UnknownError, match="does not report BlocksAllocated"):
        target.answer(RESIDENCY, Machine())


def test_only_an_engine_with_a_tier_reports_loads() -> None:
    assert LOAD_EVENTS.isdisjoint(SGLANG.tells)
