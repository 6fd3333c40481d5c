"""Prefix hits of a trace, through the real pool, against the slow and obvious LRU."""

import json
import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.checks.trace_hits import main, replay

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


def test_the_command_prints_a_line_per_capacity(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.jsonl"
    rows = [(0, [0, 1, 2]), (5, [0, 1, 3, 4]), (9, [0, 1, 2])]
    lines = [
        {"timestamp": at, "input_length": 512 * len(ids), "output_length": 1, "hash_ids": ids}
        for at, ids in rows
    ]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main([str(trace), "3", "100"]) == 0
    # With 3 blocks the second request leaves 0, 1, 3: the third finds 0 and 1.
    assert capsys.readouterr().out == "3 4 10\n100 5 10\n"


@pytest.mark.parametrize(
    "arguments", [[], ["trace.jsonl"], ["trace.jsonl", "0"], ["trace.jsonl", "many"]]
)
def test_wrong_arguments_get_the_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert "python -m tools.checks.trace_hits TRACE.jsonl CAPACITY" in capsys.readouterr().err


def test_a_bad_trace_is_one_line_and_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 0}\n')
    assert main([str(trace), "5"]) == 2
    assert main([str(tmp_path / "absent.jsonl"), "5"]) == 2
    bad, absent = capsys.readouterr().err.splitlines()
    assert bad.startswith("trace_hits: trace.jsonl:1: ")
    assert "No such file" in absent


@pytest.mark.slow
@pytest.mark.skipif(not CONVERSATION.is_file(), reason="no trace: set KVSCOPE_TRACE")
def test_the_conversation_trace_hits_exactly_as_published(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([str(CONVERSATION), *map(str, CONVERSATION_HITS)]) == 0
    printed = capsys.readouterr().out.splitlines()
    expected = [f"{c} {hits} {CONVERSATION_BLOCKS}" for c, hits in CONVERSATION_HITS.items()]
    assert printed == expected
