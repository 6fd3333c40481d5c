"""The parts of the start of a rank of SGLang, as its stream reports them."""

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvscope_events.events import Hello
from kvscope_events.memory import StartProgressed
from kvscope_events.observers.endpoints import worker_endpoint
from kvscope_events.observers.sglang import start
from kvscope_events.producers import SGLANG_RANK_EVENTS
from tests.observers import ranks
from tests.observers.ranks import (
    ARGS,
    DefaultModelLoader,
    ModelRunner,
    Scheduler,
    hooked,
    installed,
)
from tests.support.waiting import wait_for

PHASES = ["import", "device", "weights", "pool", "warm_up"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the sockets, with a checkpoint of two files."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("KVSCOPE_OBSERVER_DIR", str(tmp_path))
    files = (tmp_path / "1.safetensors", tmp_path / "2.safetensors")
    for file in files:
        file.write_bytes(bytes(160))  # ten of them a header
    monkeypatch.setattr(DefaultModelLoader, "files", files)
    return tmp_path


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with installed(monkeypatch):
        yield


def starts() -> list[StartProgressed]:
    found = ranks.events_until(StartProgressed)
    return [event for event in found if isinstance(event, StartProgressed)]


def greeting() -> Hello:
    return [event for event in ranks.events_until(Hello) if isinstance(event, Hello)][-1]


@pytest.mark.usefixtures("plugin")
def test_a_rank_says_what_it_does_while_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[StartProgressed, Hello]] = []
    monkeypatch.setattr(
        ModelRunner, "at_load", staticmethod(lambda: seen.append((starts()[-1], greeting())))
    )
    made = Scheduler(ARGS, None)
    assert not hooked(made), "every method is SGLang's own again"
    loading, hello = seen[0]
    assert [*loading.began_ns] == PHASES[:3]
    assert loading.ended_ns is None
    assert (hello.server, hello.worker, hello.engine, hello.ready) == ("sglang", "3", "0", False)
    assert (hello.model_name, set(hello.tells)) == ("tiny", SGLANG_RANK_EVENTS)
    wait_for(lambda: starts()[-1].ended_ns is not None)
    last = starts()[-1]
    assert [*last.began_ns] == PHASES
    moments = [*last.began_ns.values(), last.ended_ns]
    assert moments == sorted(moments)  # type: ignore[type-var]
    assert 0 < time.time_ns() - moments[0] < 3600 * 10**9, "the process began"  # type: ignore[operator]
    assert (last.weights_read_bytes, last.weights_file_bytes) == (600, 640), "with the drafter's"
    assert greeting().ready, "whether or not its pool is observed"
    ModelRunner()  # weights are loaded once more
    assert starts()[-1] == last


@pytest.mark.usefixtures("plugin")
def test_a_start_that_fails_leaves_no_hook_and_no_socket(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room() -> None:
        raise MemoryError("no room")

    class Kept(Scheduler):
        def __init__(self, server_args: Any, port_args: Any) -> None:
            made.append(self)
            super().__init__(server_args, port_args)

    made: list[Scheduler] = []
    monkeypatch.setattr(ModelRunner, "at_load", staticmethod(no_room))
    with pytest.raises(MemoryError, match="no room"):
        Kept(ARGS, None)
    assert not hooked(made[0])
    assert not [*folder.glob("*.sock")]


@pytest.mark.parametrize("missing", ["init_tp_model_worker", *start.PHASES])
def test_another_sglang_starts_unreported(
    missing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A part that is not seen would count as the one before it."""
    with installed(monkeypatch, **{missing: None, "init_model_worker": lambda self: None}):
        made = Scheduler(ARGS, None)
        assert not hooked(made)
    (line,) = caplog.messages
    assert f"its start is not reported: looked for Scheduler.{missing}" in line
    assert not Path(worker_endpoint(0, 3, "sglang").removeprefix("ipc://")).exists()


def test_a_runner_that_loads_in_another_way_begins_with_its_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(ModelRunner, "load_model")
    monkeypatch.setattr(ModelRunner, "__init__", lambda self: None)
    with installed(monkeypatch):
        Scheduler(ARGS, None)
        wait_for(lambda: starts()[-1].ended_ns is not None)
        assert [*starts()[-1].began_ns] == PHASES
        assert starts()[-1].weights_file_bytes is None


@pytest.mark.usefixtures("plugin")
def test_a_fault_of_ours_costs_one_line_and_sglang_starts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(self: object, phase: str) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr("kvscope_events.observers.start.Start.begin", fails)
    made = Scheduler(ARGS, None)
    assert not hooked(made)
    (line,) = caplog.messages
    assert "no longer observed: before load_model: RuntimeError('ours'); SGLang runs on" in line
    (only,) = start._starts
    wait_for(lambda: not only._thread.is_alive(), "the stream ends")


@pytest.mark.usefixtures("plugin")
def test_a_folder_that_cannot_be_used_is_said_and_sglang_starts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KVSCOPE_OBSERVER_DIR", "/tmp/" + 100 * "x")
    assert not hooked(Scheduler(ARGS, None))
    (line,) = caplog.messages
    assert "its start is not reported: " in line
    assert "Set KVSCOPE_OBSERVER_DIR to another directory" in line


@pytest.mark.usefixtures("plugin")
def test_a_second_scheduler_of_a_process_takes_the_place_of_the_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(2):
        Scheduler(ARGS, None)
    assert len(start._starts) == 1
    wait_for(lambda: starts()[-1].ended_ns is not None)
    assert caplog.text == ""


def placed(given: dict[str, Any], parallel: object = None) -> tuple[int, int]:
    """Engine and rank."""
    found = start.parallel_of(given, SimpleNamespace(get_parallel=lambda: parallel))
    return start.engine_of(found), start.rank_of(found)


def test_the_place_of_a_rank_up_to_0_5_20_and_since() -> None:
    args = SimpleNamespace(tp_size=4, dp_size=2, enable_dp_attention=False)
    given = {"server_args": args, "tp_rank": 3, "pp_rank": 1, "dp_rank": 1}
    assert placed(given) == (1, 7), "two replicas of two stages of four"
    args.enable_dp_attention = True
    given |= {"pp_rank": 0, "dp_rank": None}
    assert placed(given) == (1, 3), "the second of two groups of two"
    given["tp_rank"] = 1
    assert placed(given) == (0, 1)
    newer = SimpleNamespace(tp_size=4, tp_rank=3, pp_rank=1, dp_rank=1, attn_dp_size=1)
    assert placed({"server_args": args}, newer) == (1, 7)
    attention = SimpleNamespace(
        **vars(newer) | {"pp_rank": 0, "attn_dp_size": 2, "attn_dp_rank": 0}
    )
    assert placed({"server_args": args}, attention) == (0, 3)


@pytest.mark.parametrize(
    ("layout", "remote"),
    [
        ({"tp_size": 4}, [False] * 4),
        ({"tp_size": 4, "nnodes": 2}, [False, False, True, True]),
        ({"tp_size": 4, "nnodes": 2, "attn_dp_size": 2}, [False] * 4),  # a pool for each node
        ({"tp_size": 2, "pp_size": 2, "nnodes": 2}, [False, False, True, True]),
    ],
)
def test_a_rank_says_whether_the_scheduler_of_its_pool_is_on_another_node(
    layout: dict[str, int], remote: list[bool]
) -> None:
    args = SimpleNamespace(**{"nnodes": 1, "pp_size": 1, **layout})
    found = []
    for rank in range(args.tp_size * args.pp_size):
        pp_rank, tp_rank = divmod(rank, args.tp_size)
        groups = layout.get("attn_dp_size", 1)
        parallel = SimpleNamespace(
            tp_size=args.tp_size, tp_rank=tp_rank, pp_rank=pp_rank, attn_dp_size=groups
        )
        found.append(start.is_remote(args, parallel))
    assert found == remote
