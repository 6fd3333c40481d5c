"""Prefix hits of a trace, through the real pool, against the slow and obvious LRU."""

import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope.traces import read_trace
from tests.support.trace_hits import replay

CONVERSATION = Path(os.environ.get("KVSCOPE_TRACE", ""))
"""Mooncake's conversation trace, too large to commit; the whole-trace tests run where it is."""
CONVERSATION_HITS = {
    500: 12_168,
    1_000: 12_847,
    2_000: 15_665,
    4_000: 24_964,
    8_000: 51_368,
    16_000: 75_791,
    30_000: 93_978,
    50_000: 102_290,
    100_000: 104_924,
    150_000: 105_598,
}
CONVERSATION_BLOCKS = 288_500


def ref_hits(paths: Sequence[Sequence[int]], capacity: int) -> int:
    lru: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for path in paths:
        hits += next((i for i, block in enumerate(path) if block not in lru), len(path))
        for block in reversed(path):
            lru[block] = None
            lru.move_to_end(block)
        while len(lru) > capacity:
            lru.popitem(last=False)
    return hits


def tree_path(choices: Sequence[int]) -> list[int]:
    """Ids that name a whole prefix: equal ids mean equal choices from the start."""
    path, node = [], 1
    for choice in choices:
        node = 3 * node + choice
        path.append(node)
    return path


PATHS = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=8).map(tree_path), min_size=1, max_size=40
)


@given(paths=PATHS, capacity=st.integers(1, 30))
def test_hits_are_those_of_a_plain_lru(paths: list[list[int]], capacity: int) -> None:
    assert replay(paths, capacity) == (ref_hits(paths, capacity), sum(map(len, paths)))


@pytest.mark.slow
@pytest.mark.skipif(not CONVERSATION.is_file(), reason="no trace: set KVSCOPE_TRACE")
def test_the_conversation_trace_hits_exactly_as_published() -> None:
    paths = [request.hash_ids for request in read_trace(CONVERSATION)]
    hits = {capacity: replay(paths, capacity) for capacity in CONVERSATION_HITS}
    assert hits == {c: (found, CONVERSATION_BLOCKS) for c, found in CONVERSATION_HITS.items()}
