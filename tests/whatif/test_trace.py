"""`kvscope whatif` on traces as a user runs it, against a cache that is replayed for each size."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from kvscope.cli.app import app
from kvscope.whatif.findings import Findings, Point, Pool, capacities_up_to
from kvscope.whatif.trace import curve_of_paths
from tests.engine.test_trace_hits import CONVERSATION, CONVERSATION_HITS, PATHS, ref_hits

PATHS_OF_FIVE = [[0, 1, 2], [0, 1, 3, 4], [0, 1, 2], [5], [0, 6]]


def kvscope(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["whatif", *map(str, arguments)], env={"COLUMNS": "160"})


def document(*arguments: object) -> dict[str, Any]:
    result = kvscope(*arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    parsed: dict[str, Any] = json.loads(result.stdout)
    return parsed


def row(ids: Sequence[int], at: int = 0) -> str:
    return json.dumps(
        {"timestamp": at, "input_length": 512 * len(ids), "output_length": 1, "hash_ids": ids}
    )


def write(folder: Path, *lines: str, end: str = "\n") -> Path:
    trace = folder / "trace.jsonl"
    trace.write_text("\n".join(lines) + end)
    return trace


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write(tmp_path, *map(row, PATHS_OF_FIVE))


@given(paths=PATHS, capacities=st.sets(st.integers(1, 60), min_size=1))
def test_the_curve_is_that_of_a_replay_for_each_capacity(
    paths: list[list[int]], capacities: set[int]
) -> None:
    found = curve_of_paths(paths, list(capacities))
    assert [point.capacity_blocks for point in found.points] == sorted(capacities)
    assert [point.hit_blocks for point in found.points] == [
        ref_hits(paths, capacity) for capacity in sorted(capacities)
    ]
    assert {point.queried_blocks for point in found.points} == {sum(map(len, paths))}


def test_json_has_the_curve_and_what_is_not_in_it(trace: Path) -> None:
    found = document(trace, "--capacity", 4, "--capacity", 1, "--capacity", 4)
    assert found["curve"] == [
        {"capacity_blocks": 1, "hit_blocks": 2, "queried_blocks": 13},
        {"capacity_blocks": 4, "hit_blocks": 5, "queried_blocks": 13},
    ]
    assert (found["kind"], found["lookups"], found["distinct_blocks"]) == ("trace", 5, 7)
    assert found["pool"] is None
    assert found["doubts"] == []
    assert any("running requests" in text for text in found["not_modelled"])


def test_the_table_has_every_capacity_and_what_is_not_in_it(trace: Path) -> None:
    result = kvscope(trace)
    assert result.exit_code == 0
    assert "5 requests, 13 blocks looked up, 7 different ones" in result.stdout
    for cells in (("1", "2", "13", "15.4"), ("7", "6", "13", "46.2")):
        assert any(
            all(cell in line.split() for cell in cells) for line in result.stdout.splitlines()
        ), cells
    assert "  - running requests" in result.stdout
    assert "Flat from 5 blocks on: larger sizes find less than half a point" in result.stdout
    assert result.stderr == ""


def a_curve(hits: dict[int, int], pool: int | None = None, **changes: Any) -> Findings:
    """Of 1,000 blocks looked up."""
    return Findings(
        kind="trace" if pool is None else "recording",
        points=[Point(capacity, found, 1000) for capacity, found in hits.items()],
        lookups=1,
        queried_blocks=1000,
        distinct_blocks=None,
        seconds=None,
        pool=None if pool is None else Pool(usable_blocks=pool, block_size=16, hit_blocks=0),
        **changes,
    )


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (a_curve({100: 10, 200: 500, 400: 504}), "Flat from 200 blocks on: larger sizes find less"),
        (a_curve({100: 10, 200: 500, 400: 506}), "The curve still rises at 400 blocks"),
        (a_curve({100: 10, 200: 500, 400: 504}, pool=400), "More than the pool's 400 would be"),
        (
            a_curve({100: 10, 200: 500, 400: 504}, pool=100),
            "on: larger sizes find less than half a point more. 200 would find 49.0 points more",
        ),
        (
            a_curve({100: 10, 200: 500}, pool=100, lower_bounds=[200]),
            "200 would find at least 49.0 points more than the pool.",
        ),
        (a_curve({100: 10}), None),
        (a_curve({}), None),
    ],
)
def test_a_sentence_says_what_the_curve_comes_to(found: Findings, says: str | None) -> None:
    assert (found.verdict is None) == (says is None)
    assert says is None or says in str(found.verdict)


@pytest.mark.parametrize(
    ("largest", "grid"),
    [
        (1, [1]),
        (7, [1, 2, 5, 7]),
        (100, [1, 2, 5, 10, 20, 50, 100]),
        (
            182_790,
            [200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 182_790],
        ),
    ],
)
def test_the_grid_is_logarithmic(largest: int, grid: list[int]) -> None:
    assert capacities_up_to(largest) == grid


def test_the_picture_is_drawn(trace: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "curve.svg"
    result = kvscope(trace, "--plot", picture)
    assert result.exit_code == 0, result.output
    assert "capacity, blocks" in result.stdout
    assert "<svg" in picture.read_text()
    wrong = kvscope(trace, "--plot", tmp_path / "curve.nonsense")
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("kvscope: cannot write ")


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([""], "neither a recording"),
        (["\x1f\x8bgzip"], "neither a recording"),
        (["timestamp,input_length"], "neither a recording"),
        ([row([0, 1]), row([0, 1])[:-9]], "trace.jsonl:2: Input data was truncated"),
        (['{"prompt": "hello"}'], "trace.jsonl:1: Object missing required field"),
        (["{"], "trace.jsonl:1: Input data was truncated"),
        ([row([0]).replace("512", "0").replace("[0]", "[]")], "trace.jsonl:1: input_length"),
        ([row([0], 5), row([0], 4)], "trace.jsonl:2: timestamp: 4 after 5"),
        (['{"further": ' + "[" * 100_000], "trace.jsonl:1: nested too deeply"),
    ],
)
def test_what_is_no_trace_is_one_line(tmp_path: Path, lines: list[str], says: str) -> None:
    result = kvscope(write(tmp_path, *lines))
    assert_refused(result, says)


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert_refused(kvscope(tmp_path / "missing"), "missing: cannot be read: No such file")
    assert_refused(kvscope(tmp_path), "not a file")
    assert_refused(kvscope(empty), "empty: the file is empty")
    assert_refused(kvscope(pipe), "pipe: not a file")


@pytest.mark.parametrize("blocks", [0, -1])
def test_a_capacity_that_is_none_is_one_line(trace: Path, blocks: int) -> None:
    assert_refused(kvscope(trace, "--capacity", blocks), f"--capacity {blocks}: ")


def test_a_capacity_that_is_no_number_is_refused(trace: Path) -> None:
    result = kvscope(trace, "--capacity", "many")
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.skipif(not CONVERSATION.is_file(), reason="no trace: set KVSCOPE_TRACE")
def test_the_conversation_trace() -> None:
    options = [part for capacity in CONVERSATION_HITS for part in ("--capacity", capacity)]
    found = document(CONVERSATION, *options)
    assert {p["capacity_blocks"]: p["hit_blocks"] for p in found["curve"]} == CONVERSATION_HITS
    assert {p["queried_blocks"] for p in found["curve"]} == {288_500}
    assert found["distinct_blocks"] == 182_790
    whole = document(CONVERSATION)["curve"]
    assert whole[-1] == {
        "capacity_blocks": 182_790,
        "hit_blocks": 288_500 - 182_790,
        "queried_blocks": 288_500,
    }


def assert_refused(result: Result, says: str) -> None:
    """Exit code 2, one line that says this, and nothing that looks like a curve."""
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stderr.startswith("kvscope: ")
    assert says in result.stderr
