"""Traces: what is read, and how a bad line is named."""

import gzip
import json
import os
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kvscope.traces import Dialect, TraceError, TraceRequest, read_trace

GOOD = '{"timestamp": 5, "input_length": 600, "output_length": 7, "hash_ids": [0, 1]}'


def write(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(line + "\n" for line in lines))
    return path


def test_reads_fields_in_order(tmp_path: Path) -> None:
    later = GOOD.replace("5", "9", 1)
    requests = list(read_trace(write(tmp_path, GOOD, later)))
    assert requests[0] == TraceRequest(
        timestamp_ms=5, input_length=600, output_length=7, hash_ids=[0, 1], block_size=512
    )
    assert requests[0].num_full_blocks == 1
    assert all(a.timestamp_ms <= b.timestamp_ms for a, b in pairwise(requests))


def test_limit_leaves_the_rest_unread(tmp_path: Path) -> None:
    assert len(list(read_trace(write(tmp_path, GOOD, GOOD, "nonsense"), limit=2))) == 2


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (GOOD.replace("600", "6758"), "hash_ids: expected 14 ids for 6758 tokens in blocks of 512"),
        (GOOD.replace("600", "100"), "hash_ids: expected 1 ids for 100 tokens in blocks of 512"),
        (GOOD.replace("600", '"600"'), "input_length: expected `int`, got `str`"),
        (GOOD.replace("600", "0"), "input_length: expected `int` >= 1"),
        (GOOD.replace("7", "-7"), "output_length: expected `int` >= 0"),
        (GOOD.replace("[0, 1]", "[0, null]"), "hash_ids[1]: expected `int`, got `null`"),
        (GOOD.replace("5", "4", 1), "timestamp: 4 after 5: not in arrival order"),
        ('{"timestamp": 5}', "Object missing required field `input_length`"),
        ("[]", "Expected `object`, got `array`"),
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
    with pytest.raises(TraceError, match=r"trace\.jsonl:1: a line of more than 64 MiB"):
        list(read_trace(file))
    assert tracemalloc.get_traced_memory()[1] < 200 << 20
    tracemalloc.stop()


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trace.jsonl")
    with pytest.raises(OSError, match="not a regular file"):
        list(read_trace(tmp_path / "trace.jsonl"))


def a_row(at: float, length: int, ids: list[int], **more: Any) -> dict[str, Any]:
    return {"timestamp": at, "input_length": length, "output_length": 32, "hash_ids": ids, **more}


def requests_of(tmp_path: Path, *rows: dict[str, Any], **options: Any) -> list[TraceRequest]:
    return list(read_trace(write(tmp_path, *map(json.dumps, rows)), **options))


def paths(tmp_path: Path, *rows: dict[str, Any], **options: Any) -> list[list[int]]:
    return [[*request.hash_ids] for request in requests_of(tmp_path, *rows, **options)]


@pytest.mark.parametrize(
    ("rows", "dialect", "block_size"),
    [
        ([a_row(0, 600, [0, 1])], "mooncake", 512),
        ([a_row(0, 512, [*range(8)]), a_row(9, 500, [*range(8)])], "mooncake", 64),
        ([a_row(0, 480, [*range(10)]), a_row(9, 96, [0, 1])], "mooncake", 48),
        ([a_row(0, 600, [0, 1], block_size=300)], "mooncake", 300),
        ([a_row(0.5, 90, [*range(6)], chat_id=3, parent_chat_id=-1, turn=1)], "bailian", 16),
        ([a_row(0, 600, [0, 1], session_id="a")], "mooncake", 512),
        ([{"input_length": 64, "session_id": "a", "delay": 5}], "aiperf", 512),
        ([{"requests": [], "block_size": 32}], "weka", 32),
    ],
)
def test_dialect_and_block_size_are_those_that_the_rows_show(
    tmp_path: Path, rows: list[dict[str, Any]], dialect: str, block_size: int
) -> None:
    file = write(tmp_path, *map(json.dumps, rows))
    trace = read_trace(file)
    assert (trace.dialect, trace.block_size) == (dialect, block_size)
    overruled = read_trace(file, dialect=Dialect.BAILIAN, block_size=7)
    assert (overruled.dialect, overruled.block_size) == ("bailian", 7)


def test_times_of_bailian_are_seconds_and_its_turns_are_sessions(tmp_path: Path) -> None:
    first = a_row(0.0, 30, [7, 8], chat_id=0, parent_chat_id=-1, turn=1)
    later = a_row(1.25, 40, [7, 9, 5], chat_id=4, parent_chat_id=0, turn=2)
    requests = requests_of(tmp_path, first, later)
    assert [request.timestamp_ms for request in requests] == [0, 1250]
    assert {request.session for request in requests} == {0}


def test_content_behind_another_prefix_is_another_block(tmp_path: Path) -> None:
    found = paths(tmp_path, a_row(0, 48, [5, 6, 5]), a_row(1, 32, [6, 5]), block_size=16)
    assert len({block for path in found for block in path}) == 5


def test_a_turn_of_aiperf_has_the_turns_and_replies_before_it_in_its_prompt(tmp_path: Path) -> None:
    rows = [
        a_row(0, 64, [1, 2], session_id="a"),
        {"input_length": 32, "session_id": "a", "delay": 100, "hash_ids": [3]},
        a_row(50, 64, [1, 4], session_id="b"),
    ]
    first, other, second = requests_of(tmp_path, *rows, block_size=32)
    assert (second.timestamp_ms, second.input_length, len(second.hash_ids)) == (100, 128, 4)
    assert second.hash_ids[:2] == first.hash_ids
    assert other.hash_ids[0] == first.hash_ids[0], "the first turns share by their ids"
    assert not {*second.hash_ids[2:]} & {*first.hash_ids, *other.hash_ids}
    rows[1] |= {"input_length": 96, "hash_ids": [1, 2, 3]}
    whole = requests_of(tmp_path, *rows, block_size=32)[-1]
    assert (whole.input_length, whole.hash_ids[:2]) == (96, first.hash_ids), "it begins as before"


def test_what_others_leave_out_or_compress_is_read(tmp_path: Path) -> None:
    rows = [{"block_size": 64, "hash_ids": [2**64 - 1, 2**63], "input_length": 128}] * 2
    session = {"requests": [{"timestamp": 3, "hash_ids": [10, 11]}]}
    for lines, lengths, times in ((rows, [128, 128], [0, 0]), ([session], [128], [3000])):
        file = tmp_path / "trace.jsonl.gz"
        file.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
        requests = list(read_trace(file))
        assert [request.input_length for request in requests] == lengths
        assert [request.timestamp_ms for request in requests] == times
        assert len({tuple(request.hash_ids) for request in requests}) == 1


@pytest.mark.parametrize("indent", [None, 1], ids=["a line", "a document"])
def test_a_file_whose_compression_breaks_off_is_an_error(
    indent: int | None, tmp_path: Path
) -> None:
    session = {"requests": [{"timestamp": 3, "hash_ids": [10, 11]}]}
    file = tmp_path / "trace.jsonl.gz"
    file.write_bytes(gzip.compress(json.dumps(session, indent=indent).encode())[:-9])
    with pytest.raises(TraceError, match="its compression is broken"):
        list(read_trace(file))


def test_more_ids_than_blocks_are_an_error(tmp_path: Path) -> None:
    session = {"requests": [{"t": 0, "in": 64, "hash_ids": [1, 2, 3]}]}
    for row in (session, a_row(0, 64, [1, 2, 3], session_id="a", delay=1)):
        with pytest.raises(TraceError, match="3 ids for 64 tokens in blocks of 32: see --block"):
            paths(tmp_path, row, block_size=32)


def calls(*times: float) -> list[dict[str, Any]]:
    return [{"t": at, "type": "n", "in": 100, "out": 9, "hash_ids": [1]} for at in times]


def test_ids_of_wekas_sessions_are_their_own_and_shared_with_their_subagents(
    tmp_path: Path,
) -> None:
    agent = {"t": 4.0, "type": "subagent", "requests": calls(0.5)}
    session = {"id": "s", "block_size": 64, "requests": [*calls(1.0, 2.0), agent]}
    first, again, *others = paths(tmp_path, session, {**session, "hash_id_scope": "local"})
    assert (len(first), len(others)) == (2, 4), "an id that is missing at the end is its own"
    assert sum(path[0] == first[0] for path in (again, *others)) == 2
    everyones = paths(tmp_path, *({**session, "hash_id_scope": "global"},) * 2)
    assert len({path[0] for path in everyones}) == 1
    whole = tmp_path / "session.json"
    whole.write_text(json.dumps(session, indent=1))
    times = [request.timestamp_ms for request in read_trace(whole)]
    assert times == [1000, 2000, 4500], "a subagent's requests count from its begin"
    absolute = {**agent, "requests": calls(4.5)}
    whole.write_text(json.dumps({**session, "requests": [*calls(1.0, 2.0), absolute]}, indent=1))
    assert [request.timestamp_ms for request in read_trace(whole)] == times
