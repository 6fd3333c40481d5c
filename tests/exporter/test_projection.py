"""The projection of a stream: idle until a reader asks, bounded, and exact about its gaps."""

import pytest

from kvscope_events.events import (
    Batch,
    BlocksCached,
    BlocksEvicted,
    CacheGroup,
    NamesRemoved,
    NamesStored,
    PoolCreated,
    PoolSnapshot,
    PrefixLookup,
)
from kvscope_events.names import in_group
from kvscope_exporter.state.cache.blocks import ResidentNames
from kvscope_exporter.state.fleet.projected import (
    FirstLookup,
    Lost,
    PoolReset,
    RemovedNames,
    StoredNames,
    numbers_of,
)
from kvscope_exporter.state.fleet.projection import Projection
from tests.exporter.stream import block_hash


def name(number: int) -> bytes:
    """Differs in its first bytes, as digests do."""
    return number.to_bytes(8, "little") + bytes(8)


def names(*numbers: int) -> bytes:
    return b"".join(name(number)[:8] for number in numbers)


def played(projection: Projection, *events: object) -> None:
    projection.on_batch(Batch(0, 0, list(events), 7))


def pool(groups: int = 0) -> PoolCreated:
    kinds = [CacheGroup("full_attention", 16)] * groups
    return PoolCreated(num_blocks=8, block_size=16, bytes_per_block=0, groups=kinds)


def snapshot(*held: bytes | None) -> PoolSnapshot:
    return PoolSnapshot(8, 16, 0, 0, [0] * len(held), list(held), [])


def lookup(*numbers: int, hits: int = 0, resumed: bool = False) -> PrefixLookup:
    return PrefixLookup(1, 99, [name(number) for number in numbers], hits, resumed)


def told(projection: Projection, seq: int | None = 0) -> list[object]:
    moments, is_gap = projection.since(seq)
    assert not is_gap
    return [event for moment in moments for event in moment.events]


@pytest.fixture(autouse=True)
def _numbered_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.randbelow", lambda _: 0)


@pytest.fixture
def projection() -> Projection:
    asked = Projection()
    assert asked.since(None) == ([], False)
    return asked


def test_nothing_is_kept_until_a_reader_asks():
    projection = Projection()
    played(projection, pool(), lookup(1, 2))
    assert projection.next_seq == 0
    assert projection.since(None) == ([], False)
    played(projection, lookup(1, 2, hits=1))
    assert told(projection) == [FirstLookup(names(1, 2), 1)]


def test_first_lookups_and_names_that_come_and_go_are_kept(projection):
    played(projection, pool(), lookup(1, 2, hits=1), lookup(1, 2, hits=2, resumed=True), lookup())
    played(projection, BlocksCached(1, [3, 4], [name(2), name(3)], None))
    played(projection, BlocksEvicted([3], [name(2)], "capacity"))
    assert told(projection) == [
        *(PoolReset(), FirstLookup(names(1, 2), 1)),
        *(StoredNames(names(2, 3)), RemovedNames(names(2))),
    ]
    assert told(projection, 2) == [RemovedNames(names(2))]
    assert told(projection, 3) == []


def test_content_of_a_counted_pool_counts_and_that_of_lower_tiers_does_not(projection):
    played(projection, NamesStored("device", [name(1)], None), NamesStored("host", [name(2)], None))
    played(projection, NamesRemoved("host", [name(2)]), NamesRemoved("device", [name(1)]))
    assert told(projection) == [StoredNames(names(1)), RemovedNames(names(1))]


def test_of_several_groups_only_the_one_of_lookups_is_kept(projection):
    both = [in_group(block_hash(1 << 64), group) for group in (0, 1)]
    played(projection, pool(groups=2))
    assert projection.held(ResidentNames()) is None, "the group is not known yet"
    played(projection, PrefixLookup(1, 17, [both[1]], 0), BlocksCached(1, [1, 2], both, None))
    assert told(projection) == [PoolReset(), FirstLookup(both[1][:8], 0), StoredNames(both[1][:8])]


def test_all_names_are_listed_as_often_as_blocks_hold_them(projection):
    resident = ResidentNames()
    resident.add([name(1), name(2)])
    resident.add([name(2)])
    held = projection.held(resident)
    assert held is not None
    assert sorted(numbers_of(held)) == [1, 2, 2]


def test_a_gap_of_the_stream_makes_the_content_unknown(projection):
    played(projection, lookup(1))
    projection.on_gap()
    assert told(projection) == [FirstLookup(names(1), 0), Lost()]


def test_a_snapshot_that_another_reader_requested_loses_nothing(projection):
    played(projection, pool(), BlocksCached(1, [1, 2], [name(1), name(2)], None))
    played(projection, BlocksEvicted([1], [name(1)], "capacity"))
    before = told(projection)
    played(projection, snapshot(None, None, name(2)))
    assert told(projection) == before
    played(projection, snapshot(None, name(3), name(2)))
    assert told(projection) == [*before, Lost()]


def test_a_snapshot_after_a_gap_makes_the_content_unknown_again(projection):
    played(projection, pool())
    projection.on_gap()
    played(projection, snapshot(None, None))
    assert told(projection) == [PoolReset(), Lost(), Lost()]


def test_a_reader_that_comes_too_late_is_sent_a_gap():
    projection = Projection(kept_bytes=1000)
    projection.since(None)
    for _ in range(9):  # some two hundred bytes each
        played(projection, lookup(1))
    assert projection.since(0) == ([], True)
    moments, is_gap = projection.since(projection.next_seq - 2)
    assert (len(moments), is_gap) == (2, False)


def test_it_idles_again_when_no_reader_has_asked_for_long():
    projection = Projection(kept_bytes=1000)
    projection.since(None)
    for _ in range(99):
        played(projection, lookup(1))
    idle_since = projection.next_seq
    assert idle_since < 20
    played(projection, lookup(1))
    assert projection.next_seq == idle_since
    assert projection.since(idle_since - 1) == ([], True), "a reader that was up to date, too"


def test_a_place_in_the_stream_of_a_sidecar_that_ended_is_none_in_that_of_the_next(monkeypatch):
    monkeypatch.undo()
    before, after = Projection(), Projection()
    for projection in (before, after):
        projection.since(None)
    played(before, lookup(1))
    place = before.next_seq
    for _ in range(9):
        played(after, lookup(1))
    assert after.since(place) == ([], True)
