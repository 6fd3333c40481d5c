"""Held blocks equal a replay by plain loops, and are absent while an owner is not known."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope_events.events import (
    BlocksAllocated,
    BlocksReleased,
    BlocksShared,
    EngineEvent,
    PoolCreated,
    PoolSnapshot,
    RequestPreempted,
    RequestResumed,
)
from kvscope_exporter.state import Ledger
from kvscope_exporter.state.ledger import holds as holds_module
from tests.exporter.page import make_exporter, put, value
from tests.exporter.stream import batch_of, ended, hello, step

NUM_BLOCKS = 24


class Replay:
    """Each reference as one entry, with its owner; makes the events of what it does."""

    def __init__(self, choice: Random, groups: int) -> None:
        self.choice = choice
        self.groups = groups
        self.references: list[tuple[int, int, int]] = []  # sequence, group, block
        self.running: set[int] = set()
        self.ended: dict[int, str] = {}
        self.loading: set[int] = set()
        self.strangers: list[tuple[int, int, int]] = []
        """References from before the last snapshot."""
        self.last = 0

    def counts(self) -> list[int]:
        counts = [0] * NUM_BLOCKS
        for _, _, block in self.references:
            counts[block] += 1
        return counts

    def held(self) -> dict[str, int] | None:
        if self.strangers:
            return None
        found = {"transfer": 0, "load": 0}
        for block in range(NUM_BLOCKS):
            owners = [sequence for sequence, _, b in self.references if b == block]
            if owners and all(owner in self.ended for owner in owners):
                first = next(sequence for sequence in self.ended if sequence in owners)
                found[self.ended[first]] += 1
        return found

    def events(self) -> list[EngineEvent]:
        acts = [self.admit, self.grow, self.skip, self.end, self.hold, self.let_go]
        acts += [self.admit, self.end, self.hold, self.preempt, self.pin]
        return self.choice.choice(acts)()

    def admit(self) -> list[EngineEvent]:
        waiting = sorted(self.loading)
        if waiting and self.choice.random() < 0.5:
            sequence = self.choice.choice(waiting)
            self.loading.discard(sequence)
            self.running.add(sequence)
            return [*self.take(sequence), RequestResumed(sequence, sequence, 0, 0, 0)]
        self.last += 1
        self.running.add(self.last)
        return self.take(self.last)

    def take(self, sequence: int) -> list[EngineEvent]:
        events: list[EngineEvent] = []
        for group in range(self.groups):
            counts = self.counts()
            mine = {b for s, _, b in self.references if s == sequence}
            others = [b for b in range(NUM_BLOCKS) if counts[b] and b not in mine]
            shared = self.choice.sample(others, min(len(others), self.choice.randint(0, 2)))
            free = [block for block in range(NUM_BLOCKS) if not counts[block]]
            new = free[: self.choice.randint(0, 2)]
            self.references += [(sequence, group, block) for block in shared + new]
            if shared:
                events.append(BlocksShared(sequence, shared, "prefix_hit"))
            if new:
                events.append(BlocksAllocated(sequence, new, "prefill"))
        return events

    def grow(self) -> list[EngineEvent]:
        return self.take(self.choice.choice(sorted(self.running))) if self.running else []

    def skip(self) -> list[EngineEvent]:
        """A window leaves some blocks behind."""
        if not self.running:
            return []
        sequence = self.choice.choice(sorted(self.running))
        mine = [one for one in self.references if one[0] == sequence and one[1] == 0]
        return [self.release(mine[: self.choice.randint(0, 3)], sequence, "out_of_window")]

    def release(
        self, gone: list[tuple[int, int, int]], sequence: int, cause: str
    ) -> BlocksReleased:
        free: list[int] = []
        shared: list[int] = []
        for one in gone:
            self.references.remove(one)
            if one in self.strangers:
                self.strangers.remove(one)
            (shared if any(one[2] == b for _, _, b in self.references) else free).append(one[2])
        return BlocksReleased(sequence, [], free, shared, cause)  # type: ignore[arg-type]

    def release_all(self, sequence: int, cause: str) -> list[EngineEvent]:
        events: list[EngineEvent] = []
        for group in range(self.groups):
            mine = [one for one in self.references if one[:2] == (sequence, group)]
            if mine:
                events.append(self.release(mine, sequence, cause))
        return events

    def end(self) -> list[EngineEvent]:
        """Blocks go back first, as nearly always."""
        if not self.running:
            return []
        sequence = self.choice.choice(sorted(self.running))
        self.running.discard(sequence)
        return [*self.release_all(sequence, "finished"), ended(sequence)]

    def hold(self) -> list[EngineEvent]:
        """It ends and keeps its blocks; a victim ends while blocks for it are loaded."""
        candidates = sorted(self.running | self.loading)
        if not candidates:
            return []
        sequence = self.choice.choice(candidates)
        events: list[EngineEvent] = []
        waited = sequence in self.loading
        queue_ns: int | None = 1
        if waited:
            events = self.take(sequence)
        elif self.choice.random() < 0.2:
            waited, queue_ns = True, None
        self.running.discard(sequence)
        self.loading.discard(sequence)
        self.ended[sequence] = "load" if waited else "transfer"
        return [*events, ended(sequence, queue_ns=queue_ns)]

    def let_go(self) -> list[EngineEvent]:
        if not self.ended:
            return []
        sequence = self.choice.choice(sorted(self.ended))
        del self.ended[sequence]
        return self.release_all(sequence, "finished")

    def preempt(self) -> list[EngineEvent]:
        if not self.running:
            return []
        sequence = self.choice.choice(sorted(self.running))
        self.running.discard(sequence)
        self.loading.add(sequence)
        lost = RequestPreempted(sequence, sequence, "recompute", "out_of_blocks", 0, 0, 0)
        return [*self.release_all(sequence, "preempted"), lost]

    def pin(self) -> list[EngineEvent]:
        """A connector keeps a block for a moment, without a request."""
        counts = self.counts()
        active = [block for block in range(NUM_BLOCKS) if counts[block]]
        if not active:
            return []
        block = self.choice.choice(active)
        return [
            BlocksShared(None, [block], "pin"),
            BlocksReleased(None, [], [], [block], "unpinned"),
        ]


@given(choice=st.randoms(use_true_random=False), groups=st.integers(1, 3))
def test_held_blocks_equal_a_replay_of_every_reference(choice: Random, groups: int) -> None:
    replay, ledger = Replay(choice, groups), Ledger()
    ledger.on_batch(batch_of(PoolCreated(NUM_BLOCKS, 16, 0)))
    for number in range(1, 60):
        events = replay.events()
        if choice.random() < 0.05:
            ledger.on_gap()
            assert not ledger.known
            replay.loading.clear()  # what waited before a gap may have been resumed in it
            counts = replay.counts()
            events = [PoolSnapshot(NUM_BLOCKS, 16, 0, 0, counts, [None] * NUM_BLOCKS, [])]
            replay.strangers = list(replay.references)
        elif choice.random() < 0.1:
            events.append(
                PoolSnapshot(NUM_BLOCKS, 16, 0, 0, replay.counts(), [None] * NUM_BLOCKS, [])
            )
        active = sum(1 for count in replay.counts() if count)
        events.append(step(active_blocks=active, free_blocks=NUM_BLOCKS - active))
        ledger.on_batch(batch_of(*events, time_ns=number))
        assert ledger.imbalance == 0
        ledger.check()
        assert ledger.held == replay.held()


def ledger_after(*events: EngineEvent) -> Ledger:
    ledger = Ledger()
    ledger.on_batch(batch_of(PoolCreated(8, 16, 0), *events, time_ns=1))
    return ledger


def test_blocks_kept_after_the_end_are_held_from_then_on() -> None:
    ledger = ledger_after(BlocksAllocated(1, [0, 1, 2], "prefill"))
    assert ledger.held == {"transfer": 0, "load": 0}
    assert ledger.holds.oldest_since_ns is None
    ledger.on_batch(batch_of(ended(1), time_ns=7))
    assert ledger.held == {"transfer": 3, "load": 0}
    assert ledger.holds.oldest_since_ns == 7
    ledger.on_batch(batch_of(BlocksReleased(1, [], [0, 1, 2], [], "finished"), time_ns=9))
    assert ledger.held == {"transfer": 0, "load": 0}
    assert ledger.holds.oldest_since_ns is None


def test_a_request_that_ended_before_it_ran_holds_blocks_for_its_load() -> None:
    ledger = ledger_after(BlocksAllocated(1, [0, 1], "prefill"), ended(1, queue_ns=None))
    assert ledger.held == {"transfer": 0, "load": 2}


def test_a_block_that_a_running_request_shares_is_not_held() -> None:
    ledger = ledger_after(
        BlocksAllocated(1, [0, 1], "prefill"), BlocksShared(2, [0], "prefix_hit"), ended(1)
    )
    assert ledger.held == {"transfer": 1, "load": 0}


def test_held_blocks_are_unknown_until_those_of_a_snapshot_are_given_back() -> None:
    ledger = Ledger()
    state = PoolSnapshot(8, 16, 0, 0, [1, 1, 1, 0, 0, 0, 0, 0], [None] * 8, [])
    ledger.on_batch(batch_of(state, BlocksAllocated(2, [3], "decode")))
    assert ledger.known
    assert ledger.held is None
    ledger.on_batch(batch_of(BlocksReleased(1, [], [0, 1], [], "finished"), ended(1)))
    assert ledger.held is None
    ledger.on_batch(batch_of(BlocksReleased(2, [], [2, 3], [], "finished"), ended(2)))
    assert ledger.held == {"transfer": 0, "load": 0}


def test_a_hold_whose_blocks_went_back_without_an_owner_is_over() -> None:
    ledger = ledger_after(BlocksAllocated(1, [0, 1], "prefill"), ended(1))
    ledger.on_batch(batch_of(BlocksReleased(None, [], [0, 1], [], "unpinned")))
    assert ledger.held == {"transfer": 0, "load": 0}
    ledger.on_batch(batch_of(BlocksAllocated(2, [0, 1], "prefill")))
    assert ledger.held == {"transfer": 0, "load": 0}, "the blocks of another request by now"


def test_a_copied_block_does_not_look_held_after_its_request_gave_all_back() -> None:
    ledger = ledger_after(
        BlocksAllocated(1, [0], "prefill"),
        BlocksShared(2, [0], "prefix_hit"),
        BlocksAllocated(2, [1], "prefill"),
        BlocksShared(2, [1], "cow"),
        BlocksReleased(None, [], [], [0, 1], "cow"),
        BlocksReleased(2, [], [1], [], "finished"),
        ended(2),
        step(active_blocks=1, free_blocks=7),
    )
    assert ledger.imbalance == 0
    assert ledger.held == {"transfer": 0, "load": 0}


def test_a_producer_that_never_ends_its_sequences_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(holds_module, "MAX_SEQUENCES", 3)
    ledger = ledger_after(*(BlocksAllocated(n, [n], "prefill") for n in range(5)))
    assert ledger.known
    assert ledger.held is None


def test_owners_are_remembered_only_of_an_engine_that_may_keep_blocks() -> None:
    ledger = Ledger()
    ledger.on_batch(batch_of(hello(keeps_blocks=False), PoolCreated(8, 16, 0)))
    ledger.on_batch(batch_of(BlocksAllocated(1, [0, 1], "prefill"), ended(1)))
    assert len(ledger.holds) == 0
    assert ledger.held is None
    ledger.on_batch(batch_of(hello(keeps_blocks=True), BlocksAllocated(2, [2, 3], "prefill")))
    assert len(ledger.holds) == 2
    assert ledger.held is None, "those of before are not known"
    ledger.on_batch(batch_of(BlocksReleased(1, [], [0, 1], [], "finished"), ended(2)))
    assert ledger.held == {"transfer": 2, "load": 0}


def test_blocks_that_leave_a_window_do_not_add_up() -> None:
    ledger = Ledger()
    ledger.on_batch(batch_of(PoolCreated(8, 16, 0)))
    for number in range(holds_module.COMPACTED * 3):
        taken = BlocksAllocated(1, [number % 8], "decode")
        left = BlocksReleased(1, [], [number % 8], [], "out_of_window")
        ledger.on_batch(batch_of(taken, left))
    assert len(ledger.holds) < 2 * holds_module.COMPACTED
    ledger.on_batch(batch_of(BlocksAllocated(1, [5], "decode"), ended(1)))
    assert ledger.held == {"transfer": 1, "load": 0}


@pytest.mark.parametrize("keeps", [None, True, False])
def test_the_page_shows_held_blocks_unless_the_engine_can_keep_none(keeps: bool | None) -> None:
    exporter, subscription = make_exporter()
    put(subscription, 0, 0, hello(server="vllm", keeps_blocks=keeps), PoolCreated(8, 4, 64))
    put(subscription, 1, 0, BlocksAllocated(1, [0, 1], "prefill"), ended(1))
    put(subscription, 2, 0, step(active_blocks=2, free_blocks=6))
    held = value(exporter, "kvscope_kv_held_blocks", reason="transfer")
    assert held == (None if keeps is False else 2)
    assert (value(exporter, "kvscope_kv_oldest_hold_seconds") is None) == (keeps is False)
