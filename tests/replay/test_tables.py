"""`kvscope rec export --parquet`, asked by DuckDB and compared with plain loops over the events."""

import re
from collections import Counter
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner

from kvscope.cli.app import app
from kvscope_events.events import (
    AllocationFailed,
    Batch,
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    PoolCreated,
    RequestArrived,
    RequestFinished,
    RequestPreempted,
    RequestResumed,
    RequestScheduled,
    StepCompleted,
)
from kvscope_exporter.recorder.records import StreamGap
from tests.events.producers import hello
from tests.replay.simulated import (
    BEGINS_NS,
    batches_of,
    record_chat,
    took,
    write_records,
)
from tests.repo.checkout import ROOT

SECOND = 10**9
GUIDE = ROOT / "docs" / "guides" / "replay.md"


def export(recording: Path, folder: Path) -> Path:
    result = CliRunner().invoke(app, ["rec", "export", str(recording), "--parquet", str(folder)])
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in folder.iterdir()) == [
        "block_lives.parquet",
        "preemptions.parquet",
        "requests.parquet",
        "steps.parquet",
    ]
    return folder


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tabled") / "incident.kvsr"
    record_chat(path, 120, num_blocks=90, rate=2.0)
    return path


@pytest.fixture(scope="module")
def tables(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(recording, tmp_path_factory.mktemp("tables") / "incident")


def ask(tables: Path, query: str) -> list[tuple[object, ...]]:
    return duckdb.sql(query.replace("TABLES", str(tables))).fetchall()


def test_steps_have_the_engines_own_counts(recording: Path, tables: Path) -> None:
    expected = []
    for batch in batches_of(recording):
        evicted = sum(len(e.blocks) for e in batch.events if isinstance(e, BlocksEvicted))
        preempted = sum(isinstance(e, RequestPreempted) for e in batch.events)
        expected += [
            (
                "0",
                batch.wall_ns // 1000,
                event.duration_ns / 1e9,
                event.running,
                event.waiting,
                event.prefill_tokens,
                event.decode_tokens,
                len(event.emitted),
                event.active_blocks,
                event.cached_blocks,
                event.free_blocks,
                evicted,
                preempted,
            )
            for event in batch.events
            if isinstance(event, StepCompleted)
        ]
    columns = (
        "engine, epoch_us(ended_at), duration_seconds, running, waiting, prefill_tokens, "
        "decode_tokens, output_tokens, active_blocks, cached_blocks, free_blocks, "
        "evicted_blocks, preemptions"
    )
    assert ask(tables, f"SELECT {columns} FROM 'TABLES/steps.parquet'") == expected
    assert len(expected) > 2000


def test_every_request_is_a_row(recording: Path, tables: Path) -> None:
    rows: dict[int, dict[str, object]] = {}
    for batch in batches_of(recording):
        took_ns = sum(e.duration_ns for e in batch.events if isinstance(e, StepCompleted))
        for event in batch.events:
            match event:
                case RequestArrived(request, prompt_tokens):
                    at = (batch.wall_ns - took_ns) // 1000
                    rows[request] = {"arrived": at, "prompt": prompt_tokens}
                case RequestScheduled(request, _, cached_tokens):
                    rows[request]["cached"] = cached_tokens
                case RequestFinished(request, reason):
                    rows[request] |= {"ended": batch.wall_ns // 1000, "reason": reason}
                    rows[request] |= {"output": event.output_tokens, "lost": event.preemptions}
    expected = {
        (number, *map(row.get, ("arrived", "ended", "prompt", "cached", "output", "lost")))
        for number, row in rows.items()
    }
    columns = (
        "request, epoch_us(arrived_at), epoch_us(ended_at), prompt_tokens, cached_tokens, "
        "output_tokens, preemptions"
    )
    assert set(ask(tables, f"SELECT {columns} FROM 'TABLES/requests.parquet'")) == expected
    assert any(row[2] is None for row in expected), "some had not ended"


def test_block_lives_begin_with_an_allocation_and_end_when_the_block_is_free(
    recording: Path, tables: Path
) -> None:
    begun: Counter[int] = Counter()
    ended: Counter[tuple[int, str]] = Counter()
    hits = cached = 0
    for batch in batches_of(recording):
        for event in batch.events:
            match event:
                case BlocksAllocated(_, blocks):
                    begun.update(blocks)
                case BlocksReleased(_, _, free):
                    ended.update((block, "released") for block in free)
                case BlocksEvicted(blocks, _, cause):
                    ended.update((block, cause) for block in blocks)
                case BlocksShared(_, blocks, "prefix_hit"):
                    hits += len(blocks)
                case BlocksCached(_, blocks):
                    cached += len(blocks)
    life = "FROM 'TABLES/block_lives.parquet'"
    assert dict(ask(tables, f"SELECT block, count(allocated_at) {life} GROUP BY 1")) == begun
    query = f"SELECT block, ended_by, count(*) {life} WHERE ended_by IS NOT NULL GROUP BY 1, 2"
    assert {(block, by): number for block, by, number in ask(tables, query)} == ended
    assert ask(tables, f"SELECT sum(hits), count(cached_at), count(name) {life}") == [
        (hits, cached, cached)
    ]
    unordered = "cached_at < allocated_at OR ended_at < coalesce(cached_at, allocated_at)"
    assert ask(tables, f"SELECT count(*) {life} WHERE {unordered}") == [(0,)]
    assert hits > 1000


def test_preemptions_name_the_shortage_and_the_takers(recording: Path, tables: Path) -> None:
    expected = []
    for batch in batches_of(recording):
        took_ns = sum(e.duration_ns for e in batch.events if isinstance(e, StepCompleted))
        for before, event in zip(batch.events, batch.events[1:], strict=False):
            match before, event:
                case AllocationFailed(wanting), _:
                    wanted_by = wanting
                case _, RequestPreempted(sequence):
                    at = (batch.wall_ns - took_ns) // 1000
                    expected.append((at, sequence, wanted_by, event.blocks))
    resumed = sum(isinstance(e, RequestResumed) for b in batches_of(recording) for e in b.events)
    table = "FROM 'TABLES/preemptions.parquet'"
    columns = "epoch_us(preempted_at), sequence, wanted_by, blocks"
    assert sorted(ask(tables, f"SELECT {columns} {table}")) == sorted(expected)
    assert ask(tables, f"SELECT count(*) {table} WHERE state = 'resumed'") == [(resumed,)]
    taken = f"SELECT count(*) {table} WHERE list_sum([t.blocks FOR t IN taken_by]) > 0"
    assert ask(tables, taken)[0][0] > 20  # type: ignore[operator]


def batch(seq: int, *events: object) -> Batch:
    return Batch(
        seq,
        seq * SECOND,
        list(events),  # type: ignore[arg-type]
        BEGINS_NS + seq * SECOND,
        seq * SECOND,
    )


def test_what_a_gap_hides_is_null(tmp_path: Path) -> None:
    write_records(
        tmp_path / "gap.kvsr",
        [
            took(batch(0, hello(), PoolCreated(8, 16, 1))),
            took(batch(1, RequestArrived(1, 10, 20), BlocksAllocated(1, [3], "prefill"))),
            took(batch(2, RequestPreempted(1, 1, "recompute", "out_of_blocks", 10, 1, 5))),
            StreamGap(0),
            took(batch(4, RequestFinished(1, "stop", 10, 3, 20, 1, 4 * SECOND, None))),
            took(
                batch(
                    5,
                    BlocksAllocated(2, [4], "prefill"),
                    BlocksReleased(2, [], [4], [], "finished"),
                )
            ),
        ],
    )
    tables = export(tmp_path / "gap.kvsr", tmp_path / "tables")
    requests = "SELECT arrived_at IS NULL, ended_at IS NULL, reason FROM 'TABLES/requests.parquet'"
    assert ask(tables, requests) == [(False, True, None), (True, False, "stop")]
    lives = "SELECT block, allocated_at IS NULL, ended_by FROM 'TABLES/block_lives.parquet'"
    assert ask(tables, lives) == [(3, False, None)]
    preempted = "SELECT state, stalled_seconds, taken_by FROM 'TABLES/preemptions.parquet'"
    assert ask(tables, preempted) == [("lost", None, None)]


def test_the_guides_questions_are_answered(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tables.parent)
    questions = re.findall(r"```sql\n(.*?)```", GUIDE.read_text(), re.S)
    assert len(questions) == 5
    for question in questions:
        rows = duckdb.sql(question).fetchall()
        assert rows, question
        assert any(value is not None for value in rows[0])
