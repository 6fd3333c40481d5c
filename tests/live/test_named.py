"""The map by name, of engines that number no blocks: its cells are the names that can be found."""

import zlib
from collections.abc import Iterable
from random import Random

from kvscope_events.events import EngineEvent, PoolCounted, PoolCreated, SequenceAdded
from kvscope_events.producers import SGLANG_EVENTS, in_order
from kvscope_exporter.live.hub import Hub
from tests.exporter.page import make_exporter, put
from tests.exporter.stream import hello
from tests.exporter.test_counted_content import NAMED, Counted, lookup, path_of
from tests.exporter.tree_pool import TreePool, tree_path
from tests.support.live_reader import CACHED, FollowedView

USABLE = 16
MOST_HELD = 10


class CountedEngine:
    """An engine that counts its pages and names those that can be found, and a view of it."""

    def __init__(self, *, named: bool = True) -> None:
        self.exporter, self.subscription = make_exporter(queue_batches=4096)
        (self.target,) = self.exporter.targets
        self.seq = 0
        self.waiting: list[EngineEvent] = []
        if named:
            self.pool = TreePool(USABLE, Counted(self.waiting.append))
        else:
            self.waiting += [hello(server="sglang", tells=in_order(SGLANG_EVENTS))]
            self.waiting += [PoolCreated(40, 16, 2048)]
        self.flush()
        self.target.pipeline.drain()

    def flush(self) -> None:
        self.put(*self.waiting)
        self.waiting.clear()

    def put(self, *events: EngineEvent) -> None:
        put(self.subscription, self.seq, self.seq * 100_000_000 + 1, *events)
        self.seq += 1


def requests(random: Random, count: int) -> Iterable[tuple[int, list[bytes]]]:
    for sequence in range(count):
        yield sequence, tree_path([random.randrange(3) for _ in range(random.randrange(1, 6))])


def test_the_cells_are_the_names_of_the_pool_and_their_references_at_every_step() -> None:
    engine, random = CountedEngine(), Random(3)
    pool, reader = engine.pool, FollowedView(engine.target)
    compared, shared, evicted = 0, 0, 0
    for sequence, path in requests(random, 300):
        while pool.running and (
            random.random() < 0.4
            or sum(len(each.blocks) for each in pool.running.values()) + len(path) > MOST_HELD
        ):
            pool.end(random.choice(list(pool.running)))
            engine.flush()
        before = len(reader.names())
        pool.start(sequence, path)
        engine.flush()
        expected: dict[bytes, int] = {}
        for block, name in pool.names.items():
            expected[name] = expected.get(name, CACHED) + pool.references.get(block, 0)
        found = reader.names()
        assert found == expected
        assert reader.reader.pool["map"] == "names"
        compared += len(found)
        shared += sum(cell > CACHED + 1 for cell in found.values())
        evicted += len(found) < before + len(path)
    assert compared > 1000
    assert shared > 50
    assert evicted > 50
    assert reader.num_snapshots == 1, "frames alone were enough"


def test_a_cell_tells_its_prompt_its_sequence_and_its_life() -> None:
    engine = CountedEngine()
    reader = FollowedView(engine.target)
    path = tree_path([1, 2])
    engine.pool.start(5, path)
    engine.flush()
    read = reader.read()
    cells = [number for number, cell in enumerate(read.columns["cell"]) if cell]
    assert {read.columns["owner"][cell] for cell in cells} == {6}
    assert {read.columns["prefix"][cell] for cell in cells} == {zlib.crc32(path[0])}
    assert all(read.columns["touched"][cell] >= 1 for cell in cells)
    table = reader.view.sequence(5)
    assert table is not None
    assert sorted(table.tables[0]) == cells
    assert table.sequence.blocks is None, "how many it has is not known"
    engine.pool.start(6, path)
    engine.flush()
    reader.read()
    document = reader.view.block(table.tables[0][0])
    assert document is not None
    assert document.name == path[0].hex()
    assert document.owners == [5, 6]
    assert document.references == 2
    assert document.hits == 1
    assert [name for _, name, _, _ in document.events] == ["PrefixLookup", "NamesStored"]
    assert reader.view.block(1000) is None


def test_what_is_there_before_anyone_looks_is_in_the_map_too() -> None:
    engine, random = CountedEngine(), Random(4)
    for sequence, path in requests(random, 20):
        engine.pool.start(sequence, path)
        engine.pool.end(sequence)
        engine.flush()
    engine.target.pipeline.drain()
    assert FollowedView(engine.target).names().keys() == set(engine.pool.names.values())


def test_after_lost_batches_the_map_is_unknown_until_all_names_were_seen_again() -> None:
    engine = CountedEngine()
    reader = FollowedView(engine.target)
    engine.pool.start(1, tree_path([1, 2]))
    engine.flush()
    assert len(reader.names()) == 2
    engine.seq += 1  # a batch is lost
    engine.put(NAMED, PoolCounted(USABLE, 4, 0, 0, 0, 0, 3, 0))
    assert reader.read().pool["map"] == "unknown"
    assert reader.reader.columns == {}
    assert reader.view.block(0) is None
    engine.put(SequenceAdded(2, 2, 9, 8), lookup(2, path_of(1, 2, 3), 3))
    assert reader.read().pool["map"] == "names"
    assert reader.names().keys() == set(path_of(1, 2, 3))


def test_a_reset_empties_the_map() -> None:
    engine = CountedEngine()
    reader = FollowedView(engine.target)
    engine.pool.start(1, tree_path([1, 2]))
    engine.pool.end(1)
    engine.pool.reset()
    engine.flush()
    assert reader.names() == {}


def test_pages_with_neither_numbers_nor_names_have_no_map_and_the_note_says_what_to_do() -> None:
    engine = CountedEngine(named=False)
    reader = FollowedView(engine.target)
    assert reader.read().pool["map"] == "counted"
    assert reader.reader.columns == {}
    (row,) = Hub(lambda _: engine.exporter).engines("").engines
    assert row.map == "counted"
    assert "KVSCOPE_OBSERVER_NAMES=on" in row.note


def test_an_engine_with_numbers_after_one_without_has_a_map_of_blocks() -> None:
    engine = CountedEngine()
    reader = FollowedView(engine.target)
    assert reader.read().pool["map"] == "names"
    engine.put(hello(), PoolCreated(40, 16, 2048))
    assert reader.read().pool["map"] == "blocks"
    assert len(reader.reader.columns["cell"]) == 40
    engine.put(NAMED, PoolCreated(USABLE, 4, 0))
    assert reader.read().pool["map"] == "names"
    assert len(reader.reader.columns["cell"]) == USABLE
