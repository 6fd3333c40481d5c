"""The blocks that a reader of the live view sees equal the engine's own, at random moments."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kvscope_events.events import (
    BlockCopied,
    BlocksAllocated,
    BlocksShared,
    EngineEvent,
    RequestPreempted,
)
from kvscope_exporter.live.broadcast import Broadcast
from kvscope_exporter.live.view import View
from kvscope_exporter.recorder.recorder import Recorder
from kvscope_exporter.targets.exporter import Exporter, in_process
from kvscope_exporter.targets.target import Target
from tests.exporter.stream import HELLO
from tests.support.accounting import Accounting
from tests.support.live_reader import CACHED, FREE, RESERVED, LiveReader, Stale


class Watched:
    """An engine under load, and a reader of its live view."""

    def __init__(
        self,
        seed: int,
        queue_batches: int = 4096,
        recorder: Recorder | None = None,
        **settings: Any,
    ) -> None:
        self.engine = Accounting(num_blocks=14, reserved=1, **settings)
        bus = self.engine.bus
        bus.provide_snapshot(lambda: [HELLO, self.engine.pool.snapshot()])
        self.exporter: Exporter = in_process(bus.subscribe(queue_batches), recorder=recorder)
        bus.emit(HELLO)
        self.choice = random.Random(seed)
        self.engine.flush()
        (self.target,) = self.exporter.targets
        self.target.pipeline.drain()
        self.view = View(self.target)
        self.reader = LiveReader(self.view.snapshot()[1])
        self.num_snapshots = 1

    def disturb(self) -> None:
        """One thing that a load does."""
        engine, choice = self.engine, self.choice
        match choice.choices(range(6), (30, 60, 10, 3, 3, 1))[0]:
            case 0:
                stem = choice.choice(([1] * 8, [1, 2, 3, 4] * 4, [5] * 13))
                tail = [choice.randrange(7) for _ in range(choice.randrange(1, 8))]
                engine.add((stem + tail)[:24], choice.randrange(1, 15))
            case 1:
                if engine.live:
                    engine.step()
            case 2:
                engine.call([[1, 2, 3, 4] * 3 + [choice.randrange(7)]], 8, n=choice.randrange(1, 4))
            case 3:
                if engine.live:
                    engine.scheduler.finish(choice.choice(engine.live), "abort")
            case 4:
                for _ in range(12):
                    if engine.live:
                        engine.step()
            case 5:
                engine.pool.reset()
        engine.flush()

    def read(self) -> None:
        frame = self.view.frame()
        if frame is None:
            return
        try:
            self.reader.apply(frame)
        except Stale:
            self.reader = LiveReader(self.view.snapshot()[1])
            self.num_snapshots += 1

    def compare(self) -> None:
        pool, reader = self.engine.pool.snapshot(), self.reader
        assert reader.pool["map"] == "blocks"
        assert reader.references == pool.ref_counts
        assert reader.lru == pool.lru
        cached = set(pool.lru)
        for block, cell in enumerate(reader.columns["cell"]):
            if not pool.ref_counts[block]:
                idle = RESERVED if block < pool.reserved else FREE
                assert cell == (CACHED if block in cached else idle), block
        running = {s.sequence_id: s.block_table for s in self.engine.live if s.block_table}
        for number, table in running.items():
            document = self.view.sequence(number)
            assert document is not None
            assert document.is_whole
            assert document.tables.get(0, []) == table
            assert reader.sequences[number]["blocks"] == len(table)
        takers = last_takers(self.engine.events)
        for block in {block for table in running.values() for block in table}:
            assert reader.columns["owner"][block] - 1 == takers[block]
        for sequence in self.engine.live:
            row = reader.sequences[sequence.sequence_id]
            assert row["prompt_tokens"] == sequence.prompt_length
            assert (row["state"] in ("prefill", "decode")) == bool(sequence.block_table), row


def last_takers(events: list[EngineEvent]) -> dict[int, int | None]:
    """By block."""
    takers = {}
    for event in events:
        if isinstance(event, BlocksAllocated) or (
            isinstance(event, BlocksShared) and event.cause in ("prefix_hit", "fork")
        ):
            takers.update(dict.fromkeys(event.blocks, event.sequence))
    return takers


def test_cells_and_tables_equal_the_engines_own_at_200_random_moments() -> None:
    watched = Watched(seed=1)
    for _ in range(200):
        for _ in range(watched.choice.randrange(1, 5)):
            watched.disturb()
        watched.read()
        watched.compare()
    kinds = {type(event) for event in watched.engine.events}
    assert {RequestPreempted, BlockCopied} <= kinds, "the load was too mild"
    assert watched.num_snapshots == 1, "frames alone kept it equal"


def test_swapped_sequences_are_followed_as_well() -> None:
    watched = Watched(seed=2, swap_blocks=40)
    states = set()
    for _ in range(100):
        watched.disturb()
        watched.read()
        watched.compare()
        states |= {row["state"] for row in watched.reader.sequences.values()}
    assert {"queued", "prefill", "swapped", "finished"} <= states


def test_after_lost_batches_it_is_unknown_and_then_equal_again() -> None:
    watched = Watched(seed=3, queue_batches=2)
    was_unknown = 0
    for _ in range(60):
        for _ in range(watched.choice.randrange(1, 5)):  # more than the queue holds, at times
            watched.disturb()
        watched.read()
        if watched.reader.pool["map"] == "unknown":
            was_unknown += 1
            assert watched.reader.pool["active"] is None
            assert "cell" not in watched.reader.columns
            watched.engine.flush()  # the snapshot that was asked for
            watched.read()
        pool = watched.engine.pool.snapshot()
        assert watched.reader.references == pool.ref_counts
        assert watched.reader.lru == pool.lru
    assert was_unknown > 3


@contextmanager
def held(target: Target) -> Iterator[Target]:
    yield target


def test_nothing_is_computed_for_a_page_that_is_closed() -> None:
    watched = Watched(seed=4)
    watched.view.close()
    before = len(watched.view.following.lives.events)
    for _ in range(20):
        watched.disturb()
    watched.target.pipeline.drain()
    assert len(watched.view.following.lives.events) == before
    assert watched.target.further == ()
    broadcast = Broadcast(lambda: held(watched.target))
    assert not broadcast.following


def test_one_that_joins_late_has_the_blocks_and_knows_what_it_missed() -> None:
    watched = Watched(seed=5)
    for _ in range(60):
        watched.disturb()
    watched.view.close()
    alone = View(watched.target)
    reader = LiveReader(alone.snapshot()[1])
    pool = watched.engine.pool.snapshot()
    assert reader.references == pool.ref_counts
    assert reader.lru == pool.lru
    assert reader.sequences == {}
    assert set(reader.columns["owner"]) == {0}
    while watched.engine.live:
        watched.engine.step()
        if alone.following.sequences.known:
            break
    for sequence in alone.following.sequences.known.values():
        assert not sequence.is_whole
        assert sequence.prompt_tokens is None or sequence.state in ("finished", "aborted")
