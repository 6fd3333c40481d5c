"""The waterfall of a fleet equals plain loops over replicas that hold multisets of names."""

import tracemalloc
from array import array

from hypothesis import given
from hypothesis import strategies as st

from kvscope_exporter.state.fleet import Steps, Waterfall
from kvscope_exporter.state.fleet.path_stack import PathStack

TREE = [(), (0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]
"""Places in a tree of prompts: a name is a place, and its path are its ancestors and itself."""
PATHS = st.sampled_from([place for place in TREE if place]).map(
    lambda place: [place[: depth + 1] for depth in range(len(place))]
)
NAMES = st.lists(st.sampled_from(TREE), max_size=5)
SLOTS = st.integers(0, 2)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("look_up"), SLOTS, PATHS),
        st.tuples(st.sampled_from(["store", "remove", "replace"]), SLOTS, NAMES),
        st.tuples(st.sampled_from(["clear", "restart"]), SLOTS, st.just([])),
    ),
    max_size=30,
)
TIERS = (1, 2, 3, 5)


def test_a_replica_that_knows_more_than_we_do_is_believed():
    waterfall = Waterfall()
    waterfall.holders.join()
    waterfall.look_up(["a", "b", "c"], own=2)  # of its state we know nothing
    assert waterfall.totals == Steps(own=2, best=2, anywhere=2, seen=2, asked=3)


CONTRADICTING = st.lists(st.integers(0, 4), min_size=1, max_size=4)
"""Names that repeat, and that follow different ones, as no digests of prefixes do."""


@given(st.lists(CONTRADICTING, min_size=20, max_size=60), st.integers(1, 8))
def test_paths_that_contradict_each_other_end_nothing(paths, horizon):
    stack = PathStack(horizon)
    for path in paths:
        assert sum(blocks for _, blocks in stack.touch(path)) <= len(path)
        assert len(path) <= len(stack) < horizon + 4


def test_a_long_beginning_that_all_share_is_kept_once():
    stack = PathStack(horizon=1 << 20)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(200):
            own = range(10_000 + 10 * number, 10_010 + 10 * number)
            stack.touch(array("Q", [*range(5000), *own]))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(stack) == 5000 + 200 * 10
    assert after - before < 100 * len(stack), "all of them as they came take eight megabytes"
