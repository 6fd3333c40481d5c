"""Sidecars that contradict themselves or each other are counted and left out; the others stay."""

import base64
import logging
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope_exporter.answers.projection import Position, positions_text, read_positions
from kvscope_exporter.fleet.answer import fleet_answer
from kvscope_exporter.fleet.fleet import MAX_SPACES, Fleet
from kvscope_exporter.state.fleet import Steps
from kvscope_exporter.state.fleet.projected import (
    VERSION,
    EventsDocument,
    FirstLookup,
    Lost,
    Part,
    PoolReset,
    RemovedNames,
    StepEvents,
    StoredNames,
    UnknownEngine,
)


def names(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(8, "little") for number in numbers)


def part(*events: Any, **changes: Any) -> Part:
    """An engine of eight blocks that was created, and then this."""
    moments = [StepEvents(0, 1, [PoolReset()]), StepEvents(1, 2, list(events))]
    fields: dict[str, Any] = {
        "server": "llama",
        "engine": "0",
        "model_name": "demo",
        "session": "s",
        "kind": "vllm",
        "name_space": "one",
        "hash_algorithm": "sha256",
        "block_size": 16,
        "bytes_per_block": None,
        "num_blocks": 8,
        "next_seq": 2,
        "is_gap": False,
        "moments": moments,
        "held": None,
    }
    return Part(**fields | changes)


def document(*parts: Part, unknown: tuple[UnknownEngine, ...] = ()) -> EventsDocument:
    return EventsDocument(version=VERSION, wall_ns=3, parts=[*parts], unknown=[*unknown])


def states(fleet: Fleet) -> dict[tuple[str, str, str], tuple[str, str]]:
    return {replica.key: (replica.state, replica.reason) for replica in fleet.replicas()}


def resident(fleet: Fleet) -> int:
    return fleet.read(lambda all_: sum(s.waterfall.holders.resident_blocks for s in all_))


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(FirstLookup(names(1), 2), id="found more than it looked up"),
        pytest.param(StoredNames(names(1)[:7]), id="part of a name"),
        pytest.param(RemovedNames(names(1)[:7]), id="part of a name that goes"),
        pytest.param(StoredNames(names(*range(9))), id="more names than blocks"),
    ],
)
def test_a_replica_that_contradicts_itself_is_left_out(
    event: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = Fleet()
    well = document(part(StoredNames(names(7)), session="well"))
    with caplog.at_level(logging.WARNING):
        fleet.fold([("a", document(part(event))), ("b", well)])
        fleet.fold([("a", document(part(event)))])  # again, a second later
    assert fleet.contradictions == {"a": 1}, "it is ignored from then on"
    assert len(caplog.records) == 1
    assert states(fleet) == {
        ("a", "llama", "0"): ("unknown", "it contradicted itself"),
        ("b", "llama", "0"): ("counted", ""),
    }
    assert resident(fleet) == 1


@pytest.mark.parametrize(
    ("first", "next_seq"),
    [
        pytest.param(3, 4, id="a moment is left out"),
        pytest.param(1, 2, id="a moment comes again"),
        pytest.param(2, 4, id="the end is left out"),
    ],
)
def test_moments_that_do_not_follow_each_other_are_refused(first: int, next_seq: int) -> None:
    fleet = Fleet()
    fleet.fold([("a", document(part(FirstLookup(names(1), 0))))])
    moments = [StepEvents(first, 3, [StoredNames(names(1))])]
    fleet.fold([("a", document(part(moments=moments, next_seq=next_seq)))])
    assert fleet.contradictions == {"a": 1}
    assert resident(fleet) == 0


NAMES = st.lists(st.integers(0, 3), max_size=4).map(lambda numbers: names(*numbers))
EVENTS = st.lists(
    st.one_of(
        st.builds(FirstLookup, NAMES, st.integers(0, 2)),
        st.builds(StoredNames, NAMES),
        st.builds(RemovedNames, NAMES),
        st.builds(PoolReset),
        st.builds(Lost),
    ),
    max_size=4,
)
PARTS = st.builds(
    lambda events, life, engine, **fields: part(
        *events, session=f"{engine}-{life}", engine=f"{engine}", **fields
    ),
    EVENTS,
    st.integers(0, 1),
    st.integers(0, 2),
    name_space=st.sampled_from(["one", "two", None]),
    held=st.none() | NAMES,
    is_gap=st.booleans(),
)
DOCUMENTS = st.tuples(st.sampled_from("ab"), st.lists(PARTS, max_size=2))


@given(st.lists(DOCUMENTS, max_size=12))
def test_no_answer_ends_the_fold(answers: list[tuple[str, list[Part]]]) -> None:
    """Names repeat in paths here and follow different ones, which no chain of digests has."""
    fleet = Fleet(horizon=6)
    for sidecar, parts in answers:
        fleet.fold([(sidecar, document(*parts))])
        msgspec.json.encode(fleet_answer(fleet))
        for steps in fleet.read(lambda spaces: [space.waterfall.totals for space in spaces]):
            assert list(steps) == sorted(steps)


def test_all_names_that_do_not_fit_into_the_pool_are_refused() -> None:
    fleet = Fleet()
    fleet.fold([("a", document(part(held=names(*range(9)), moments=[])))])
    assert fleet.contradictions == {"a": 1}
    assert resident(fleet) == 0


def test_an_engine_that_two_sidecars_watch_is_counted_once() -> None:
    fleet = Fleet()
    fleet.fold(
        [
            (side, document(part(FirstLookup(names(1, 2), 0), StoredNames(names(1)))))
            for side in "ab"
        ]
    )
    assert states(fleet) == {
        ("a", "llama", "0"): ("counted", ""),
        ("b", "llama", "0"): ("doubled", "the same engine as a/llama/0"),
    }
    (space,) = fleet_answer(fleet).spaces
    assert (space.asked_blocks, space.distinct_blocks) == (2, 1)


def test_of_two_engines_with_the_same_labels_neither_is_counted() -> None:
    fleet = Fleet()
    twins = [part(StoredNames(names(number)), session=f"{number}") for number in (1, 2)]
    fleet.fold([("a", document(*twins))])
    assert states(fleet) == {
        ("a", "llama", "0"): ("doubled", "two engines have these labels"),
    }
    assert resident(fleet) == 0


def test_names_that_cannot_be_compared_are_not_merged() -> None:
    fleet = Fleet()
    fleet.fold([("a", document(part(StoredNames(names(1)), name_space=None)))])
    assert [state for state, _ in states(fleet).values()] == ["incomparable"]
    assert fleet_answer(fleet).spaces == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"block_size": 32}, "16 and 32 tokens: set the same block size"),
        ({"hash_algorithm": "xxhash"}, "sha256 and xxhash: set the same --prefix-caching-hash"),
        ({}, "set the same PYTHONHASHSEED"),
    ],
)
def test_the_answer_says_what_would_make_names_comparable(
    changes: dict[str, Any], says: str
) -> None:
    fleet = Fleet()
    other = part(StoredNames(names(1)), name_space="two", session="t", **changes)
    fleet.fold([("a", document(part(StoredNames(names(1))))), ("b", document(other))])
    (line,) = fleet_answer(fleet).apart
    assert line.startswith("demo: ")
    assert says in line
    assert [space.distinct_blocks for space in fleet_answer(fleet).spaces] == [1, 1]


def test_new_name_spaces_without_end_are_bounded() -> None:
    fleet = Fleet()
    for number in range(3 * MAX_SPACES):
        own = part(StoredNames(names(1)), name_space=f"{number}", session=f"{number}")
        fleet.fold([("a", document(own))])
        assert fleet.read(len) <= MAX_SPACES
    assert [state for state, _ in states(fleet).values()] == ["counted"]
    many = [
        part(
            StoredNames(names(1)), name_space=f"n{number}", session=f"n{number}", engine=f"{number}"
        )
        for number in range(2 * MAX_SPACES)
    ]
    fleet.fold([("a", document(*many))])
    assert fleet.read(len) <= MAX_SPACES
    assert {state for state, _ in states(fleet).values()} == {"counted", "unknown"}


def test_an_engine_of_which_nothing_is_known_names_the_reason() -> None:
    fleet = Fleet()
    fleet.fold([("a", document(part(StoredNames(names(1)))))])
    gone = UnknownEngine(
        server="llama", engine="0", model_name="demo", reason="its observer stopped"
    )
    fleet.fold([("a", document(unknown=(gone,)))])
    assert states(fleet) == {("a", "llama", "0"): ("unknown", "its observer stopped")}
    assert resident(fleet) == 0


def test_an_engine_that_is_gone_is_forgotten() -> None:
    fleet = Fleet()
    fleet.fold([("a", document(part(StoredNames(names(1)))))])
    fleet.fold([("a", document())])
    assert (states(fleet), resident(fleet)) == ({}, 0)


def test_clocks_that_differ_change_no_sum_of_what_was_found() -> None:
    """Two replicas take the same steps, one of them two seconds ahead."""

    @dataclass
    class Case:
        ahead_ns: int

        def totals(self) -> Steps:
            fleet = Fleet()
            late = [
                StepEvents(0, 1 + self.ahead_ns, [PoolReset()]),
                StepEvents(
                    1, 2 + self.ahead_ns, [FirstLookup(names(1, 2), 0), StoredNames(names(1, 2))]
                ),
                StepEvents(2, 9 + self.ahead_ns, [FirstLookup(names(1, 2), 2)]),
            ]
            one, other = (
                part(moments=late, next_seq=3),
                part(FirstLookup(names(1, 2), 0), session="t"),
            )
            fleet.fold([("a", document(one)), ("b", document(other))])
            (totals,) = fleet.read(lambda spaces: [space.waterfall.totals for space in spaces])
            return totals

    on_time, ahead = Case(0).totals(), Case(2_000_000_000).totals()
    assert on_time.own == ahead.own == 2
    assert on_time.asked == ahead.asked == 6
    for totals in (on_time, ahead):
        assert totals.own <= totals.best <= totals.anywhere <= totals.seen <= totals.asked


DEEP = base64.urlsafe_b64encode(b"\x81\xa1s\x93\x01\xc3" + b"\x91" * 20_000 + b"\xc0").decode()


@pytest.mark.parametrize(
    "text", ["!", "A", "é", "x" * 100_000, "gqFhkwHAwA==", "kw==", "gaL__5IBww==", DEEP]
)
def test_a_reader_at_no_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_positions(text)


def test_positions_survive_a_url() -> None:
    positions = {"s" * 16: Position(7, wants_names=True), "t": Position(0, wants_names=False)}
    assert read_positions(positions_text(positions)) == positions
    assert read_positions("") == {}
