"""`kvscope whatif` on recordings as a user runs it: the curve of real pools, or why none."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from kvscope.cli.app import app
from kvscope.whatif.findings import WhatIfError
from kvscope.whatif.recording import curve_of_recording
from kvscope_engine.block_pool import BlockPool
from kvscope_events.bus import EventBus
from kvscope_events.events import (
    Batch,
    CacheGroup,
    EngineEvent,
    PoolCreated,
    PrefixLookup,
)
from kvscope_events.wire.frame import decode_batch
from kvscope_exporter.recorder.format import BEGINS, ENDS, pack_chunk
from kvscope_exporter.recorder.records import Record, SessionStart, StreamBatch, StreamStart, encode
from tests.exporter.shadow_stream import FULL, SIZE, WINDOW, alternating
from tests.exporter.stream import hello, step
from tests.replay.simulated import BEGINS_NS, opened, record_chat, took
from tests.support.trace_hits import replay

POOL = 12
BLOCK_SIZE = 16


def frame(seq: int, events: Sequence[EngineEvent]) -> Record:
    return took(Batch(seq, 1_000_000_000 * seq, list(events)))


def served(num_blocks: int, paths: Sequence[Sequence[int]], *, engine: str = "0") -> list[Record]:
    """The recording of a real pool that serves one path after another, a batch for each."""
    bus = EventBus()
    events = bus.subscribe()
    bus.emit(hello(engine=engine))
    pool = BlockPool(num_blocks, BLOCK_SIZE, bus)
    bus.flush()
    for sequence, path in enumerate(paths):
        names = [block.to_bytes(16) for block in path]
        prefix = pool.find(names)
        tokens = len(path) * BLOCK_SIZE
        bus.emit(PrefixLookup(sequence, tokens + 1, names, len(prefix)))
        if prefix:
            pool.share(sequence, list(prefix))
        fresh = pool.allocate(sequence, len(path) - len(prefix), "prefill")
        if fresh:
            parent = names[len(prefix) - 1] if prefix else None
            pool.cache(sequence, list(fresh), names[len(prefix) :], parent)
        pool.release(sequence, [*prefix, *fresh], "finished")
        bus.flush()
    bus.provide_snapshot(lambda: [hello(engine=engine), pool.snapshot()])
    events.request_snapshot()
    bus.flush()
    frames: list[Record] = []
    while (taken := events.take()) is not None:
        frames.append(frame(len(frames), taken[0].events))
    return frames


def paths_of(seed: int, count: int = 60) -> list[list[int]]:
    random = Random(seed)
    paths = []
    for _ in range(count):
        path, node = [], 1
        for _ in range(random.randrange(1, 6)):
            node = 4 * node + int(4 * random.random() ** 2)
            path.append(node)
        paths.append(path)
    return paths


PATHS = paths_of(0)


def hits_of(num_blocks: int, paths: Sequence[Sequence[int]] = PATHS) -> int:
    """Hits of the real pool of that size."""
    return replay(paths, num_blocks)[0]


def segment(entries: Iterable[Record], index: int = 0) -> bytes:
    """A chunk for each entry. index: entries of the stream before it."""
    begin = [encode(opened()), encode(StreamStart(0, "wire", "", index))]
    chunks = [begin, *([encode(entry)] for entry in entries)]
    flags = [BEGINS, *(0 for _ in chunks[2:]), ENDS]
    return b"".join(
        pack_chunk(chunk, flag, BEGINS_NS, BEGINS_NS)
        for chunk, flag in zip(chunks, flags, strict=True)
    )


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., Path]:
    def write(*entries: Record) -> Path:
        file = tmp_path / "run.kvsr"
        file.write_bytes(segment(entries))
        return file

    return write


def kvscope(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["whatif", *map(str, arguments)], env={"COLUMNS": "160"})


def document(*arguments: object) -> dict[str, Any]:
    result = kvscope(*arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    parsed: dict[str, Any] = json.loads(result.stdout)
    return parsed


def curve(found: dict[str, Any]) -> dict[int, int]:
    return {point["capacity_blocks"]: point["hit_blocks"] for point in found["curve"]}


@pytest.mark.parametrize("seed", range(5))
def test_the_curve_is_what_real_pools_of_these_sizes_find(
    seed: int, recorded: Callable[..., Path]
) -> None:
    paths = paths_of(seed)
    sizes = [5, 6, 9, POOL, 17, 24, 31, 48]
    options = [part for size in sizes for part in ("--capacity", size)]
    found = document(recorded(*served(POOL, paths)), *options)
    assert curve(found) == {size: hits_of(size, paths) for size in sizes}
    assert found["pool"] == {
        "usable_blocks": POOL,
        "block_size": BLOCK_SIZE,
        "hit_blocks": hits_of(POOL, paths),
    }
    assert (found["lookups"], found["queried_blocks"]) == (60, sum(map(len, paths)))
    assert (found["doubts"], found["lower_bounds"]) == ([], [])
    assert found["seconds"] == 59


def test_the_table_shows_where_the_pool_is(recorded: Callable[..., Path]) -> None:
    result = kvscope(recorded(*served(POOL, PATHS)))
    assert result.exit_code == 0, result.output
    (here,) = [line for line in result.stdout.splitlines() if "the pool" in line and "│" in line]
    assert f"│ {hits_of(POOL):,} │" in " ".join(here.split())
    assert f"a pool of {POOL} blocks of {BLOCK_SIZE} tokens found" in result.stdout
    assert "  - a pool too small for the requests that ran" in result.stdout


def test_the_picture_shows_where_the_pool_is(recorded: Callable[..., Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "curve.svg"
    assert kvscope(recorded(*served(POOL, PATHS)), "--plot", picture).exit_code == 0
    assert picture.stat().st_size > 5_000


def test_capacities_beyond_what_is_known_have_no_figure(recorded: Callable[..., Path]) -> None:
    file = recorded(*served(POOL, PATHS))
    found = document(file, "--capacity", 4 * POOL, "--capacity", 4 * POOL + 1)
    assert list(curve(found)) == [4 * POOL]
    assert any("over 48 blocks are unknown" in doubt for doubt in found["doubts"])


def test_after_a_gap_the_curve_begins_anew_and_says_so(recorded: Callable[..., Path]) -> None:
    whole, state = served(POOL, PATHS), served(POOL, PATHS[:40])[-1]
    # The pool as it is after the gap: a snapshot, then 20 further requests.
    late = [frame(100 + seq, decoded(one)) for seq, one in enumerate([state, *whole[41:61]])]
    found = document(recorded(*whole[:30], *late), "--capacity", POOL)
    assert found["lookups"] == 20
    assert found["queried_blocks"] == sum(map(len, PATHS[40:60]))
    assert any("batches are missing: the curve restarts there" in d for d in found["doubts"])
    assert "29 of 49 lookups are not in the curve" in found["doubts"]


@pytest.mark.parametrize("back", [20, None], ids=["a part", "all"])
def test_what_is_in_the_file_twice_counts_once_and_is_said(
    back: int | None, recorded: Callable[..., Path]
) -> None:
    whole = served(POOL, PATHS)
    file = recorded(*(whole if back is None else whole[:40]))
    again = 0 if back is None else 40 - back
    file.write_bytes(file.read_bytes() + segment(whole[again:], again))
    found = document(file, "--capacity", POOL)
    assert curve(found) == {POOL: hits_of(POOL)}
    assert found["lookups"] == len(PATHS)
    repeated = back or len(whole)
    assert found["doubts"] == [f"{repeated} batches are in the file more than once, and count once"]


def test_a_recording_that_begins_in_the_middle_has_lower_bounds(
    recorded: Callable[..., Path],
) -> None:
    whole = served(POOL, PATHS)
    # The state after 30 requests, as a reader gets it that comes then.
    state = served(POOL, PATHS[:30])[-1]
    late = [frame(31 + seq, decoded(one)) for seq, one in enumerate([state, *whole[31:61]])]
    sizes = [6, POOL, 24]
    options = [part for size in sizes for part in ("--capacity", size)]
    file = recorded(*late)
    found = document(file, *options)
    truth = {size: hits_of(size) - hits_of(size, PATHS[:30]) for size in sizes}
    assert {size: curve(found)[size] for size in (6, POOL)} == {
        size: truth[size] for size in (6, POOL)
    }
    assert curve(found)[24] <= truth[24]
    assert found["lower_bounds"] == [24]
    assert "lower bounds" in " ".join(found["doubts"])
    assert "≥ " in kvscope(file).stdout


def test_a_snapshot_in_between_changes_nothing(recorded: Callable[..., Path]) -> None:
    """Another reader came and asked for it."""
    whole = served(POOL, PATHS)
    state = served(POOL, PATHS[:30])[-1]
    frames = [*whole[:31], state, *whole[31:]]
    again = [frame(seq, decoded(one)) for seq, one in enumerate(frames)]
    found = document(recorded(*again), "--capacity", 24)
    assert curve(found) == {24: hits_of(24)}
    assert found["lower_bounds"] == []


@pytest.mark.parametrize("by", ["pool", "engine", "socket"])
def test_of_two_runs_the_curve_is_of_the_last(by: str, recorded: Callable[..., Path]) -> None:
    first, second = served(POOL, PATHS), served(8, PATHS[:20])
    if by == "pool":
        second = [frame(len(first) + seq, decoded(one)) for seq, one in enumerate(second)]
    elif by == "engine":
        second.insert(0, SessionStart(0))
    else:
        others = [msgspec.structs.replace(one, stream=1) for one in second]  # type: ignore[type-var]
        second = [StreamStart(1, "wire", "", 0), *others]
    found = document(recorded(*first, *second), "--capacity", 8)
    assert curve(found) == {8: hits_of(8, PATHS[:20])}
    assert found["pool"]["usable_blocks"] == 8
    assert "60 of 80 lookups are not in the curve" in found["doubts"]
    assert any("the curve restarts there" in doubt for doubt in found["doubts"])


def test_a_pool_made_anew_in_mid_batch_leaves_what_came_before_it_to_the_former_pool(
    recorded: Callable[..., Path],
) -> None:
    first, second = served(POOL, PATHS)[:-1], served(8, PATHS[:20])
    last = [*decoded(first[-1]), *decoded(second[0])]
    found = document(recorded(*first[:-1], frame(60, last)), "--capacity", POOL)
    assert curve(found) == {POOL: hits_of(POOL)}
    assert (found["lookups"], found["seconds"]) == (60, 59)
    assert found["doubts"] == ["the pool was recreated: the curve restarts there"]
    later = [frame(59 + seq, decoded(one)) for seq, one in enumerate(second)]
    both = [*last, *decoded(second[1])]
    found = document(recorded(*first[:-1], frame(60, both), *later[2:]), "--capacity", 8)
    assert found["lookups"] == 20
    assert curve(found) == {8: hits_of(8, PATHS[:20])}


def test_a_recording_that_ends_in_mid_chunk_is_read_to_there(
    recorded: Callable[..., Path],
) -> None:
    file = recorded(*served(POOL, PATHS)[:42])
    file.write_bytes(file.read_bytes()[:-3])
    found = document(file, "--capacity", POOL)
    assert curve(found) == {POOL: hits_of(POOL, PATHS[:40])}
    assert found["lookups"] == 40
    assert any("the recording is cut off here" in doubt for doubt in found["doubts"])
    assert "Note: the recording is not whole: byte " in kvscope(file).stdout


def test_a_batch_that_cannot_be_read_is_a_gap(recorded: Callable[..., Path]) -> None:
    frames = served(POOL, PATHS)
    spoilt = StreamBatch(0, msgspec.Raw(b"\xa1x"))
    found = document(recorded(*frames[:30], spoilt, *frames[31:]), "--capacity", POOL)
    assert curve(found) == {POOL: hits_of(POOL, PATHS[:29])}
    assert any("1 batches are missing" in doubt for doubt in found["doubts"])
    assert any("1 batches or events could not be decoded" in doubt for doubt in found["doubts"])


NO_POOL = [hello(), step()]
WINDOWS = PoolCreated(POOL, 16, 0, 0, {}, [CacheGroup("sliding_window", 16, 64)])


def of_groups(hit_blocks: int) -> list[Record]:
    """The entries of a pool of a window and full attention."""
    pool = PoolCreated(15, SIZE, 0, 1, groups=[WINDOW, FULL], retention=0)
    events = [[hello(), pool], *alternating(hit_blocks)]
    return [frame(seq, batch) for seq, batch in enumerate(events)]


def test_pools_of_several_groups_are_simulated(recorded: Callable[..., Path]) -> None:
    found = curve_of_recording(recorded(*of_groups(0)), [28])
    assert found.pool is not None
    assert (found.pool.usable_blocks, found.pool.hit_blocks) == (14, 0)
    hits = [(point.capacity_blocks, point.hit_blocks) for point in found.points]
    assert hits == [(14, 0), (28, 190)]
    assert found.queried_blocks == 200
    assert list(found.doubts) == list(found.lower_bounds) == []


def test_a_simulation_that_finds_something_else_than_the_engine_is_refused(
    recorded: Callable[..., Path],
) -> None:
    with pytest.raises(WhatIfError, match="finds 0 blocks, the engine found 190"):
        curve_of_recording(recorded(*of_groups(5)))


A_LOOKUP = PrefixLookup(0, 33, [b"a" * 16, b"b" * 16], 0)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"KVSR", "byte 0: the recording is cut off here"),
        (segment([frame(0, NO_POOL)])[:60], "byte 0: the recording is cut off here"),
        (b"KVSR\x63\x00" + bytes(30), "format 99, but this kvscope reads format"),
        (segment([SessionStart(0)]), "it holds no batch"),
        (segment([frame(0, NO_POOL)]), "no pool in it"),
        (segment([frame(0, [hello(), PoolCreated(POOL, 16, 0)])]), "no lookup in it"),
        (
            segment([frame(0, [hello(enable_prefix_caching=False), PoolCreated(POOL, 16, 0)])]),
            "prefix caching is off",
        ),
        (segment([frame(0, [hello(), WINDOWS, A_LOOKUP])]), "no group of full attention"),
        (
            segment([frame(0, [hello(), PoolCreated(POOL, 16, 0)]), frame(9, [A_LOOKUP])]),
            "no lookup in it while the state of the pool was known (8 batches are missing)",
        ),
    ],
    ids=[
        *(
            "magic",
            "header",
            "format",
            "empty",
            "no-pool",
            "no-lookup",
            "caching-off",
            "groups",
            "gap",
        ),
    ],
)
def test_a_recording_without_a_curve_is_one_line(content: bytes, says: str, tmp_path: Path) -> None:
    file = tmp_path / "run.kvsr"
    file.write_bytes(content)
    result = kvscope(file)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stderr.startswith("kvscope: ")
    assert says in result.stderr


def decoded(one: Record) -> list[EngineEvent]:
    assert isinstance(one, StreamBatch)
    return decode_batch(bytes(one.batch))[0].events


def test_a_capacity_that_the_recording_cannot_tell_is_named_without_an_empty_table(
    recorded: Callable[..., Path],
) -> None:
    said = kvscope(recorded(*served(POOL, PATHS)), "--capacity", 99_999_999).stdout
    joined = " ".join(said.split())
    assert (
        f"capacities over {4 * POOL:,} blocks are unknown: a recording covers them up to" in joined
    )
    assert "hit ratio" not in said


def test_a_recording_that_a_sidecar_saved_by_itself_has_the_curve_of_its_engine(
    tmp_path: Path,
) -> None:
    """The recorder asks for the state at its beginning, so hits of larger pools are bounds."""
    file = tmp_path / "saved.kvsr"
    record_chat(file, 120, num_blocks=40, rate=2)
    found = document(file)
    assert found["kind"] == "recording"
    pool = found["pool"]
    assert curve(found)[pool["usable_blocks"]] == pool["hit_blocks"] > 0


def test_of_several_engines_in_one_recording_there_is_no_single_curve(
    recorded: Callable[..., Path],
) -> None:
    other = served(8, PATHS[:20], engine="1")
    moved = [msgspec.structs.replace(one, stream=1) for one in other]  # type: ignore[type-var]
    file = recorded(*served(POOL, PATHS), StreamStart(1, "wire", "", 0), *moved)
    result = kvscope(file)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert "it has several engines, each with a pool of its own" in result.stderr
