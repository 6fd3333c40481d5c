"""Our engine publishes, our reader of vLLM's KV events reads: what one holds the other knows."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.block_pool import BlockPool
from engine.kv_events.publisher import KvEventPublisher
from engine.kv_events.settings import KvEventsConfig
from exporter.clock import Clock
from exporter.sources.kv_events import KvEventsSource
from kvscope_events.events import BlockHash, NamesCleared, NamesRemoved, NamesStored
from tests.support.own_engine import OwnEngine
from tests.support.prefix_trees import Load, drive
from tests.support.waiting import WAIT_SECONDS, wait_for

PRESSURE = Load(
    requests=60, clients=4, systems=3, system_tokens=64, conversations=3, turns=4, user_tokens=40
)
NUM_BLOCKS = 72


class Known:
    """The names that the reader has heard of."""

    def __init__(self, source: KvEventsSource) -> None:
        self.source = source
        self.names: set[BlockHash] = set()
        self.num_removed = 0
        self.num_clears = 0

    def wait_for(self, names: set[BlockHash]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not (self.source.state_known and self.names == names):
            assert time.monotonic() < deadline, (
                f"known: {self.source.state_known}, {len(self.names ^ names)} names differ"
            )
            self.source.wait(0.05)
            self._take()

    def _take(self) -> None:
        while (taken := self.source.take()) is not None:
            for event in taken[0].events:
                match event:
                    case NamesStored():
                        assert event.tier == "device"
                        assert not self.names & set(event.names), "stored twice"
                        self.names |= set(event.names)
                    case NamesRemoved():
                        assert set(event.names) <= self.names
                        self.names -= set(event.names)
                        self.num_removed += len(event.names)
                    case NamesCleared():
                        self.names.clear()
                        self.num_clears += 1


@contextmanager
def published(**settings: object) -> Iterator[KvEventPublisher]:
    here = {"endpoint": "tcp://127.0.0.1:0", "replay_endpoint": "tcp://127.0.0.1:0"}
    config = KvEventsConfig(
        **({"enable_kv_cache_events": True, "bind": True} | here | settings)  # type: ignore[arg-type]
    )
    publisher = KvEventPublisher(config)
    publisher.start()
    try:
        yield publisher
    finally:
        publisher.stop()


@contextmanager
def known(publisher: KvEventPublisher) -> Iterator[Known]:
    source = KvEventsSource(
        publisher.address,
        replay=publisher.replay_address,
        server="kvscope",
        engine="0",
        clock=Clock(),
    )
    try:
        yield Known(source)
    finally:
        source.close()


def findable(pool: BlockPool) -> set[BlockHash]:
    """Names as the reader has them: eight bytes of group and padding, eight of the hash."""
    return {bytes(8) + name[-8:] for name in pool.snapshot().hashes if name is not None}


def test_under_pressure_the_reader_knows_what_the_pool_holds() -> None:
    with published() as publisher, known(publisher) as reader:
        engine = OwnEngine(NUM_BLOCKS, PRESSURE.longest, PRESSURE.clients, publisher)
        drive(engine, PRESSURE)
        held = findable(engine.pool)
        reader.wait_for(held)
        assert len(held) > NUM_BLOCKS // 2
        assert reader.num_removed > NUM_BLOCKS, "there was no pressure"
        engine.pool.reset()
        publisher.end_step()
        reader.wait_for(set())
        assert reader.num_clears == 1
        assert reader.source.decode_errors["malformed"] == 0


def test_who_joins_late_learns_all_from_the_replay() -> None:
    with published() as publisher:
        engine = OwnEngine(NUM_BLOCKS, PRESSURE.longest, PRESSURE.clients, publisher)
        drive(engine, PRESSURE)
        with known(publisher) as reader:
            reader.wait_for(findable(engine.pool))


def test_whole_names_are_read_as_well() -> None:
    with published(int_block_hashes=False) as publisher, known(publisher) as reader:
        engine = OwnEngine(NUM_BLOCKS, PRESSURE.longest, PRESSURE.clients, publisher)
        drive(engine, PRESSURE)
        names = [name for name in engine.pool.snapshot().hashes if name is not None]
        reader.wait_for({bytes(4) + name[-12:] for name in names})


def test_after_a_drop_the_reader_knows_that_it_does_not_know_until_a_reset() -> None:
    with published(max_queue_size=1) as publisher, known(publisher) as reader:
        reader.wait_for(set())
        for number in range(50):  # faster than the publisher's tick
            publisher.stored([number.to_bytes(16, "big")], None, [1], 1, "")
            publisher.end_step()
        assert publisher.num_dropped

        def say(tell: Callable[[], None]) -> None:
            time.sleep(0.03)  # some ticks: this one is not dropped
            tell()
            publisher.end_step()
            while reader.source.take() is not None:
                pass

        def told_one() -> bool:
            say(lambda: publisher.removed([bytes(16)]))
            return reader.source.gaps > 0 and not reader.source.state_known

        def told_reset() -> bool:
            say(publisher.cleared)
            return reader.source.state_known

        wait_for(told_one, "a gap that nobody saw")
        wait_for(told_reset, "a reset that nobody believed")
