"""Traces: what is read, and how a bad line is named."""

import os
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest

from kvscope.load import TraceError, TraceRequest, read_trace

GOOD = '{"timestamp": 5, "input_length": 600, "output_length": 7, "hash_ids": [0, 1]}'


def write(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(line + "\n" for line in lines))
    return path


def test_reads_fields_in_order(tmp_path: Path) -> None:
    later = GOOD.replace("5", "9", 1)
    requests = list(read_trace(write(tmp_path, GOOD, later)))
    assert requests[0] == TraceRequest(
        timestamp_ms=5, input_length=600, output_length=7, hash_ids=[0, 1]
    )
    assert requests[0].num_full_blocks == 1
    assert all(a.timestamp_ms <= b.timestamp_ms for a, b in pairwise(requests))


def test_limit_leaves_the_rest_unread(tmp_path: Path) -> None:
    assert len(list(read_trace(write(tmp_path, GOOD, GOOD, "nonsense"), limit=2))) == 2


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (GOOD.replace("600", "6758"), "hash_ids: expected 14 ids for 6758 tokens, got 2"),
        (GOOD.replace("600", "512"), "hash_ids: expected 1 ids for 512 tokens, got 2"),
        (GOOD.replace("600", '"600"'), "input_length: expected `int`, got `str`"),
        (GOOD.replace("600", "0"), "input_length: expected `int` >= 1"),
        (GOOD.replace("7", "-7"), "output_length: expected `int` >= 0"),
        (GOOD.replace("[0, 1]", "[0, null]"), "hash_ids[1]: expected `int`, got `null`"),
        (GOOD.replace("[0, 1]", "[0, 0]"), "hash_ids: an id occurs twice"),
        (GOOD.replace("5", "4", 1), "timestamp: 4 after 5: not in arrival order"),
        ('{"timestamp": 5}', "Object missing required field `input_length`"),
        ("[]", "Expected `object`, got `array`"),
        ("", "Input data was truncated"),
        ("{", "Input data was truncated"),
        ('{"further": ' + "[" * 100_000, "nested too deeply"),
    ],
)
def test_a_bad_line_is_named_with_its_field(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(TraceError) as caught:
        list(read_trace(write(tmp_path, GOOD, line)))
    assert str(caught.value).startswith(f"trace.jsonl:2: {problem}")
    assert caught.value.line_number == 2


def test_a_line_without_an_end_is_not_read_into_memory(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    with file.open("wb") as sparse:
        sparse.write(b"{")
        sparse.truncate(8 << 30)
    tracemalloc.start()
    with pytest.raises(TraceError, match=r"trace\.jsonl:1: a line of more than 32 MiB"):
        list(read_trace(file))
    assert tracemalloc.get_traced_memory()[1] < 200 << 20
    tracemalloc.stop()


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trace.jsonl")
    with pytest.raises(OSError, match="not a regular file"):
        list(read_trace(tmp_path / "trace.jsonl"))
