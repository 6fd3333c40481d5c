"""`kvscope whatif --replicas` on recordings of several real pools, as a user runs it."""

import json
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kvscope.cli.app import app
from kvscope_engine.block_pool import BlockPool
from kvscope_events.bus import EventBus
from kvscope_events.events import (
    Batch,
    CacheGroup,
    EngineEvent,
    NamesStored,
    PoolCounted,
    PoolCreated,
    PoolSnapshot,
    PrefixLookup,
    SequenceAdded,
    SequenceFinished,
)
from kvscope_exporter.recorder.records import StreamStart
from tests.exporter.stream import hello
from tests.replay.simulated import opened, took, write_batches, write_segment

BLOCK_SIZE = 16
SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
SPACE = "a" * 32
OUTPUT_TOKENS = 7


class Recorded:
    """A real pool that serves one turn after another, and its recording."""

    def __init__(self, file: Path, num_blocks: int, name: str, **introduced: Any) -> None:
        self.file = file
        self.hits = 0
        self._bus = EventBus()
        self._events = self._bus.subscribe()
        self.batches: list[Batch] = []
        self._sequence = 0
        self._bus.emit(hello(**{"name_space": SPACE, "session": name, **introduced}))
        self.pool = BlockPool(num_blocks, BLOCK_SIZE, self._bus)
        self._end_batch(START)

    def serve(self, at_ns: int, path: Sequence[int], generated: Sequence[int] = ()) -> None:
        """A request that looks up a path and generates blocks behind it."""
        sequence, self._sequence = self._sequence, self._sequence + 1
        names = [block.to_bytes(16) for block in path]
        all_names = [*names, *(block.to_bytes(16) for block in generated)]
        prefix = list(self.pool.find(names))
        self.hits += len(prefix)
        tokens = len(path) * BLOCK_SIZE + 1
        self._bus.emit(SequenceAdded(sequence, sequence, tokens, OUTPUT_TOKENS))
        self._bus.emit(PrefixLookup(sequence, tokens, names, len(prefix)))
        if prefix:
            self.pool.share(sequence, prefix)
        table = prefix
        fresh = list(self.pool.allocate(sequence, len(all_names) - len(prefix), "prefill"))
        if fresh:
            parent = names[len(prefix) - 1] if prefix else None
            self.pool.cache(sequence, fresh, all_names[len(prefix) :], parent)
        table = [*prefix, *fresh]
        self.pool.release(sequence, table, "finished")
        self._bus.emit(
            SequenceFinished(
                *(sequence, sequence, "length", tokens, OUTPUT_TOKENS, OUTPUT_TOKENS),
                preemptions=0,
                elapsed_ns=5,
                queue_ns=0,
                prefill_ns=1,
                decode_ns=1,
            )
        )
        self._end_batch(at_ns)

    def tell(self, *events: EngineEvent, at_ns: int = START) -> None:
        """Events of a batch of their own."""
        for event in events:
            self._bus.emit(event)
        self._end_batch(at_ns)

    def saved(self, *, without: Sequence[int] = ()) -> Path:
        """The file, without the batches of these numbers."""
        kept = [batch for batch in self.batches if batch.seq not in without]
        write_batches(self.file, kept)
        return self.file

    def _end_batch(self, wall_ns: int) -> None:
        self._bus.flush()
        while (taken := self._events.take()) is not None:
            number = len(self.batches)
            self.batches.append(Batch(number, number, taken[0].events, wall_ns))


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Recorded]:
    def made(name: str, num_blocks: int = 40, **introduced: Any) -> Recorded:
        return Recorded(tmp_path / f"{name}.kvsr", num_blocks, name, **introduced)

    return made


def kvscope(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["whatif", *map(str, arguments)], env={"COLUMNS": "160"})


def document(*arguments: object) -> dict[str, Any]:
    result = kvscope(*arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    parsed: dict[str, Any] = json.loads(result.stdout)
    return parsed


def refused(result: Result) -> str:
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert len(result.stderr.splitlines()) == 1, result.stderr
    return result.stderr


def by_policy(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {policy["policy"]: policy for policy in found["policies"]}


def conversations(seed: int) -> list[tuple[list[int], list[int]]]:
    """Paths that are looked up, and what is generated behind them: the next turn begins with
    both."""
    random, fresh = Random(seed), count(1)
    system = [next(fresh), next(fresh)]
    open_ones = [system for _ in range(6)]
    turns = []
    for _ in range(80):
        chosen = random.randrange(len(open_ones))
        path = [*open_ones[chosen], next(fresh)]
        generated = [next(fresh) for _ in range(random.randrange(3))]
        turns.append((path, generated))
        open_ones[chosen] = [*path, *generated] if len(path) < 6 else system
    return turns


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("num_blocks", [10, 14, 40])
def test_the_recorded_placement_finds_what_the_real_pools_found(
    make: Callable[..., Recorded], seed: int, num_blocks: int
) -> None:
    replicas = [make(f"r{number}", num_blocks) for number in range(3)]
    turns = conversations(seed)
    for number, (path, generated) in enumerate(turns):
        replica = replicas[number * 7 // 4 % 3]
        replica.serve(START + number * SECOND, path, generated)
    found = document(*[replica.saved() for replica in replicas], "--replicas", 3)
    hits = sum(replica.hits for replica in replicas)
    assert hits > 0
    assert by_policy(found)["recorded"]["own_blocks"] == hits == found["recorded_hit_blocks"]
    assert found["capacity_blocks"] == num_blocks
    assert found["block_tokens"] == BLOCK_SIZE
    assert found["requests"] == len(turns)
    # The prompts are shorter than those that prefix-hash is for.
    assert all("--prefix-tokens" in doubt for doubt in found["doubts"])


def test_the_replay_of_another_policy_is_what_real_pools_find_under_it(
    make: Callable[..., Recorded],
) -> None:
    recorded = [make(f"r{number}", 12) for number in range(2)]
    others = [make(f"o{number}", 12) for number in range(2)]
    for number, (path, generated) in enumerate(conversations(7)):
        recorded[number // 5 % 2].serve(START + number * SECOND, path, generated)
        others[number % 2].serve(START + number * SECOND, path, generated)
    files = [replica.saved() for replica in recorded]
    found = by_policy(document(*files, "--replicas", 2, "--policy", "round-robin"))
    assert found["round-robin"]["own_blocks"] == sum(other.hits for other in others)
    assert list(found) == ["round-robin"]


def test_what_a_counted_pool_generated_is_found_by_the_next_turn(
    make: Callable[..., Recorded],
) -> None:
    names = [number.to_bytes(16) for number in range(6)]
    counted = make("counted")
    counted.tell(
        PoolCounted(40, BLOCK_SIZE, 0, 0, private=0, protected=0, cached=0),
        PrefixLookup(1, 49, names[:3], 0),
        NamesStored("device", names[:3], None, BLOCK_SIZE),
        NamesStored("device", names[3:4], names[2], BLOCK_SIZE),
        NamesStored("device", names[4:5], names[3], BLOCK_SIZE),
        PrefixLookup(2, 97, names, 5),
    )
    found = by_policy(document(counted.saved(without=[0]), "--replicas", 1))
    assert found["recorded"]["own_blocks"] == 5


def test_one_recording_is_a_workload_for_any_number_of_replicas(
    make: Callable[..., Recorded],
) -> None:
    one = make("one", 40)
    for number, (path, generated) in enumerate(conversations(1)):
        one.serve(START + number * SECOND, path, generated)
    found = by_policy(document(one.saved(), "--replicas", 4, "--capacity", 10))
    assert list(found) == ["round-robin", "least-loaded", "prefix-hash", "kv-aware"]
    assert found["kv-aware"]["own_blocks"] > found["round-robin"]["own_blocks"]


def test_the_engines_of_one_recording_are_replicas(
    make: Callable[..., Recorded], tmp_path: Path
) -> None:
    """As a sidecar saves them, which watches several engines of a server."""
    engines = [make(str(number), engine=str(number)) for number in range(2)]
    for number, (path, generated) in enumerate(conversations(1)):
        engines[number % 2].serve(START + number * SECOND, path, generated)
    both = tmp_path / "both.kvsr"
    entered = [StreamStart(number, "wire", "", 0) for number in range(2)]
    taken = [took(batch, number) for number in range(2) for batch in engines[number].batches]
    write_segment(both, [opened(), *entered, *taken])
    found = document(both, "--replicas", 2, "--policy", "recorded")
    apart = document(*[each.saved() for each in engines], "--replicas", 2, "--policy", "recorded")
    assert found["policies"] == apart["policies"]
    assert found["recorded_hit_blocks"] == sum(each.hits for each in engines)


def test_an_engine_whose_restart_has_another_socket_is_one_replica(
    make: Callable[..., Recorded], tmp_path: Path
) -> None:
    lives = [make(str(number)) for number in range(2)]
    for number, (path, generated) in enumerate(conversations(1)):
        lives[number // 40].serve(START + number * SECOND, path, generated)
    file = tmp_path / "restarted.kvsr"
    entries = [
        [StreamStart(number, "wire", "", 0), *(took(batch, number) for batch in life.batches)]
        for number, life in enumerate(lives)
    ]
    write_segment(file, [opened(), *entries[0], *entries[1]])
    found = document(file, "--replicas", 1, "--policy", "recorded")
    assert any(doubt.startswith("an engine was restarted") for doubt in found["doubts"])
    assert found["requests"] == len(conversations(1))


def test_the_text_says_what_the_replicas_themselves_found(make: Callable[..., Recorded]) -> None:
    one = make("one", 40)
    one.serve(START, [1, 2])
    one.serve(START + SECOND, [1, 2])
    said = " ".join(kvscope(one.saved(), "--replicas", 1).stdout.split())
    assert "The recorded placement finds 50.0 % of the blocks asked for;" in said
    assert "The replicas themselves found 50.0 % when they were recorded." in said


def test_replicas_with_other_names_for_the_same_content_are_not_merged(
    make: Callable[..., Recorded],
) -> None:
    def pair(**introduced: Any) -> str:
        replicas = [make("a"), make("b", **introduced)]
        for replica in replicas:
            replica.serve(START, [1, 2])
        return refused(kvscope(*[r.saved() for r in replicas], "--replicas", 2))

    other = "b" * 32
    assert "a.kvsr and " in pair(name_space=other)
    assert "PYTHONHASHSEED" in pair(name_space=other)
    assert "the model is demo in one and else in" in pair(name_space=other, model_name="else")
    assert "hash algorithm is None in one and xxhash in" in pair(
        name_space=other, prefix_caching_hash_algo="xxhash"
    )
    assert "b.kvsr: its names of blocks cannot be compared" in pair(name_space=None)


def test_what_cannot_be_replayed_is_one_line(make: Callable[..., Recorded], tmp_path: Path) -> None:
    good = make("good")
    good.serve(START, [1, 2])
    good.saved()

    def refusal(replica: Recorded) -> str:
        return refused(kvscope(good.file, replica.saved(), "--replicas", 2))

    assert "idle.kvsr: no lookup in it" in refused(kvscope(make("idle").saved(), "--replicas", 2))
    off = make("off", enable_prefix_caching=False)
    assert "prefix caching is off" in refusal(off)
    unnamed = make("unnamed")
    unnamed.tell(PrefixLookup(0, 33, [], 0, named=False))
    assert "its lookups do not name their blocks" in refusal(unnamed)
    groups = make("groups")
    kinds = [CacheGroup("full_attention", 16), CacheGroup("sliding_window", 16, 64)]
    groups.tell(PoolCreated(40, 16, 0, groups=kinds))
    assert "several kinds of layers" in refusal(groups)
    clockless = make("clockless")
    clockless.serve(0, [1, 2])
    assert "no wall clock" in refusal(clockless)
    pools = make("pools", 50)
    pools.serve(START, [1, 2])
    assert "the recorded pools differ: give the blocks of each replica's" in refusal(pools)
    again = refused(kvscope(good.file, good.file, "--replicas", 2))
    assert "are recordings of the same engine" in again
    cut = tmp_path / "cut.kvsr"
    cut.write_bytes(good.file.read_bytes()[:20])
    assert "the recording is cut off here" in refused(kvscope(good.file, cut, "--replicas", 2))
    trace = tmp_path / "trace.jsonl"
    trace.write_text("{}")
    assert "name one trace, or the" in refused(kvscope(good.file, trace, "--replicas", 2))
    assert "--policy recorded: 1 recordings" in refused(
        kvscope(good.file, "--replicas", 2, "--policy", "recorded")
    )
    assert "--policy session: 1 of 1 requests name no session" in refused(
        kvscope(good.file, "--replicas", 2, "--policy", "session")
    )


def test_defects_of_a_recording_are_notes(make: Callable[..., Recorded]) -> None:
    holed = make("holed")
    for number in range(4):
        holed.serve(START + number * SECOND, [1, 2])
    lost = document(holed.saved(without=[2]), "--replicas", 1)
    assert lost["doubts"] == ["holed.kvsr: 1 batches are missing; their requests are not replayed"]
    assert lost["requests"] == 3

    used = make("used")
    used.serve(START, [1, 2])
    snapshot = used.pool.snapshot()
    assert isinstance(snapshot, PoolSnapshot)
    late = make("late")
    late.tell(snapshot)
    late.serve(START + SECOND, [1, 2])
    (doubt,) = document(late.saved(without=[0]), "--replicas", 1)["doubts"]
    assert doubt.startswith("late.kvsr begins with a pool in use")

    busy, idle = make("busy"), make("idle")
    busy.serve(START, [1, 2])
    found = document(busy.saved(), idle.saved(), "--replicas", 2)
    assert found["doubts"] == ["idle.kvsr: nothing was looked up in it"]

    running = make("running")
    running.serve(START, [1, 2])
    running.tell(PrefixLookup(99, 33, [bytes(16)], 0), at_ns=START + SECOND)
    (doubt,) = document(running.saved(), "--replicas", 1)["doubts"]
    assert doubt.startswith("1 of 2 requests had not ended")


def test_the_tier_takes_the_bytes_of_the_recorded_blocks(make: Callable[..., Recorded]) -> None:
    sized = make("sized")
    sized.tell(PoolCreated(40, BLOCK_SIZE, 1_000_000))
    for number in range(4):
        sized.serve(START + number * SECOND, [number + 1, number + 11])
    for number in range(4):
        sized.serve(START + 9 * SECOND, [number + 1, number + 11])
    options = ("--replicas", 2, "--capacity", 1, "--policy", "round-robin")
    found = document(sized.saved(), *options, "--tier", 0.008, "--tier", 0.002)
    assert found["block_bytes"] == 1_000_000
    assert by_policy(found)["round-robin"]["tiers"] == [
        {"blocks": 2, "bytes": 2_000_000, "hit_blocks": 0},
        {"blocks": 8, "bytes": 8_000_000, "hit_blocks": 8},
    ]
