"""A sample of a fleet's conversations finds what these find among all, and states its error."""

import random
from collections import OrderedDict
from collections.abc import Iterator
from hashlib import sha256
from math import sqrt
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope_exporter.state.fleet import Steps, Waterfall
from kvscope_exporter.state.fleet.sample import GROUPS, Sample
from kvscope_exporter.state.simulation.roots import WINDOW

REPLICAS = 3
SYSTEMS = [[("system", number, depth) for depth in range(4)] for number in range(3)]
"""Beginnings that many prompts share."""
CONVERSATIONS = st.integers(0, 40)
SLOTS = st.integers(0, REPLICAS - 1)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("request"), SLOTS, CONVERSATIONS, st.integers(1, 6)),
        st.tuples(st.just("goes on"), SLOTS, CONVERSATIONS, st.integers(1, 6)),
        st.tuples(st.just("evicts"), SLOTS, CONVERSATIONS, st.integers(0, 6)),
    ),
    max_size=60,
)


def name(place: tuple[object, ...]) -> int:
    """As a digest's first eight bytes."""
    return int.from_bytes(sha256(repr(place).encode()).digest()[:8], "little")


def path_of(conversation: int, turns: int) -> list[int]:
    own = [("turn", conversation, depth) for depth in range(turns)]
    return [name(place) for place in (*SYSTEMS[conversation % len(SYSTEMS)], *own)]


class Both:
    """The same events, with all conversations and with one of `one_of`."""

    def __init__(self, one_of: int) -> None:
        self.every, self.sampled = Waterfall(), Waterfall(one_of=one_of)
        self.one_of = one_of
        self.held: list[set[int]] = [set() for _ in range(REPLICAS)]
        for _ in range(REPLICAS):
            assert self.every.holders.join() == self.sampled.holders.join()
        for number in range(WINDOW):  # from which it learns what many share
            self.look_up(number % REPLICAS, path_of(1000 + number, 2))

    def look_up(self, slot: int, path: list[int]) -> tuple[Steps | None, Steps | None]:
        held = self.held[slot]
        own = next((at for at, each in enumerate(path) if each not in held), len(path))
        found = self.every.look_up(path, own), self.sampled.look_up(path, own)
        self.store(slot, path, own)
        return found

    def store(self, slot: int, path: list[int], at: int) -> None:
        new = [each for each in path[at:] if each not in self.held[slot]]
        parent = path[path.index(new[0]) - 1] if new and path.index(new[0]) else None
        self.held[slot].update(new)
        for waterfall in (self.every, self.sampled):
            waterfall.store(slot, new, parent)

    def remove(self, slot: int, path: list[int]) -> None:
        gone = [each for each in reversed(path) if each in self.held[slot]]
        self.held[slot].difference_update(gone)
        for waterfall in (self.every, self.sampled):
            waterfall.holders.remove(slot, gone)


@given(ACTIONS, st.sampled_from([2, 4]))
def test_what_a_chosen_request_finds_is_what_it_finds_among_all(actions, one_of):
    both, chosen = Both(one_of), set()
    for action, slot, conversation, turns in actions:
        path = path_of(conversation, turns)
        if action == "request":
            every, sampled = both.look_up(slot, path)
            if sampled is not None:
                chosen.add(conversation)
                assert sampled.seen <= every.seen
                assert sampled._replace(seen=0) == every._replace(seen=0)
            else:
                assert conversation not in chosen, "once in the sample, it stays there"
        elif action == "goes on":  # what it generates becomes findable
            held = [depth for depth in range(len(path)) if path[depth] not in both.held[slot]]
            if held and held[0]:
                both.store(slot, path, held[0])
        else:
            both.remove(slot, path[len(path) - turns :])


def conversations(seed: int, requests: int) -> Iterator[list[int]]:
    """Paths that grow turn by turn, several at a time, the last ones more often."""
    draw = random.Random(seed)
    open_: list[tuple[int, int]] = []
    for number in range(requests):
        if len(open_) < 200 or draw.random() < 0.2:
            open_.append((number, 1))
        conversation, turns = open_.pop(int(len(open_) * (1 - draw.random() ** 2)))
        yield path_of(conversation, turns)
        if turns < 24:
            open_.append((conversation, turns + draw.randrange(1, 8)))


class Shares(NamedTuple):
    """Shares of the blocks asked for since the sample began to choose."""

    steps: list[float]
    tiers: dict[int, float]


def shares(waterfall: Waterfall, before: Steps, tiers: dict[int, int]) -> Shares:
    since = [now - then for now, then in zip(waterfall.totals, before, strict=True)]
    asked = since[-1]
    curve = waterfall.asked.hits_by_size()
    return Shares(
        [blocks / asked for blocks in since],
        {size: (hits - tiers.get(size, 0)) / asked for size, hits in curve},
    )


def played(seed: int, one_of: int) -> tuple[Shares, Shares, float | None]:
    """Four pools by turns, with all conversations and with a sample; the sample's error."""
    every, sampled = Waterfall(), Waterfall(one_of=one_of)
    pools: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(4)]
    for waterfall in (every, sampled):
        assert [waterfall.holders.join() for _ in pools] == [*range(len(pools))]
    before, tiers = Steps(), dict[int, int]()
    for number, path in enumerate(conversations(seed, 4000)):
        if number == WINDOW:
            before, tiers = every.totals, dict(every.asked.hits_by_size())
        slot = number % len(pools)
        pool = pools[slot]
        own = next((at for at, each in enumerate(path) if each not in pool), len(path))
        for each in reversed(path):
            pool[each] = None
            pool.move_to_end(each)
        gone = [pool.popitem(last=False)[0] for _ in range(len(pool) - 800)]
        for waterfall in (every, sampled):
            waterfall.look_up(path, own)
            waterfall.store(slot, path[own:], path[own - 1] if own else None)
            waterfall.holders.remove(slot, gone)
    return (
        shares(every, before, tiers),
        shares(sampled, Steps(), {}),
        sampled.standard_error(),
    )


@pytest.mark.parametrize("one_of", [2, 8])
def test_the_shares_are_those_of_all_within_the_stated_error(one_of: int) -> None:
    within = 0
    for seed in range(3):
        every, sampled, error = played(seed, one_of)
        assert error is not None
        assert 0 < error < 0.01 * sqrt(one_of), "one of eight is off by a point or two"
        pairs = zip(every.steps, sampled.steps, strict=True)
        off = max(abs(one - other) for one, other in pairs)
        assert off < 4 * error, seed
        within += off < 2 * error
        for size in every.tiers.keys() & sampled.tiers.keys():
            assert abs(every.tiers[size] - sampled.tiers[size]) < 4 * error, size
    assert within >= 2


def test_all_are_folded_without_a_sample_and_nothing_is_off() -> None:
    waterfall = Waterfall()
    assert waterfall.sample is None
    assert waterfall.standard_error() == 0


def test_an_error_is_not_known_before_each_part_of_the_sample_was_asked_for_something() -> None:
    assert Waterfall(one_of=2).standard_error() is None


def test_groups_and_shares_are_even() -> None:
    sample = Sample(8)
    for number in range(WINDOW):
        early = sample.learn([name((number,))])
    assert len(early) == pytest.approx(WINDOW / 8, rel=0.5)
    groups = [sample.look_up([name((number,))]) for number in range(WINDOW, 9 * WINDOW)]
    chosen = [group for group in groups if group is not None]
    assert len(chosen) == pytest.approx(WINDOW, rel=0.15)
    assert {*chosen} == {*range(GROUPS)}
    assert max(map(chosen.count, range(GROUPS))) < 2 * WINDOW / GROUPS
