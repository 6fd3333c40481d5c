"""`kvscope whatif --set` as a user runs it, against engines that really ran so."""

import json
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from kvscope.cli.app import app
from kvscope.twin.traffic import traffic_of
from kvscope_events.events import CacheGroup, Hello, PoolCreated
from tests.replay.simulated import batches_of, record_stage, write_batches
from tests.support.paced import Call
from tests.why.stage import chat

SECONDS = 40
STEP_SECONDS = 0.03
RUNS: dict[str, dict[str, Any]] = {
    "base": {},
    "max_num_seqs=3": {"max_num_seqs": 3},
    "num_gpu_blocks_override=70": {"num_blocks": 70},
    "max_num_batched_tokens=64": {"max_num_batched_tokens": 64},
}
ASYNCHRONOUS = {"max_num_seqs": 32, "max_num_batched_tokens": 256, "async_scheduling": 1}
COMMON = {"num_blocks": 200, "max_model_len": 1024}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One load on engines with each of these options."""
    folder = tmp_path_factory.mktemp("twins")
    files = {}
    for number, (name, options) in enumerate(RUNS.items()):
        files[name] = folder / f"{number}.kvsr"
        record_stage(
            files[name],
            lambda stage: stage.play(chat(3, SECONDS, rate=1.6, users=9), SECONDS),
            **COMMON | options,
        )
    return files


def ask(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["whatif", *map(str, arguments)])


def asked(*arguments: object) -> dict[str, Any]:
    result = ask(*arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_other_options_come_out_as_they_do_when_they_are_run(recordings: dict[str, Path]) -> None:
    changes = [name for name in RUNS if name != "base"]
    found = asked(recordings["base"], *(word for name in changes for word in ("--set", name)))
    assert found["steps_alike"] == found["steps"] > 500
    assert found["first_difference"] is None
    assert found["step_time"]["r2"] > 0.99
    for name in ("itl_p50", "itl_p95", "tokens_per_second", "hit_ratio"):
        assert abs(found["error"][name]) < 0.03, name
    measured = found["measured"]
    assert found["predicted"]["ttft_p95"]["middle"] == pytest.approx(
        measured["ttft_p95"], abs=2 * STEP_SECONDS
    )
    for name, setting in zip(changes, found["settings"], strict=True):
        real = traffic_of(recordings[name])[0].measured()
        predicted = {key: one["middle"] for key, one in setting["predicted"].items()}
        for key, share in (("itl_p50", 0.1), ("tokens_per_second", 0.05), ("hit_ratio", 0.1)):
            assert predicted[key] == pytest.approx(real[key], rel=share), (name, key)
        assert predicted["preemptions"] == pytest.approx(real["preemptions"], rel=0.3, abs=3), name
        assert predicted["ttft_p95"] == pytest.approx(
            real["ttft_p95"], rel=0.15, abs=2 * STEP_SECONDS
        ), name
    assert "ttft_p95" not in found["settings"][0]["within_error"], "three sequences are too few"


def test_the_table_says_what_is_known_and_from_what(recordings: dict[str, Path]) -> None:
    result = ask(recordings["base"], "--set", "max-num-seqs=32,blocks=200")
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "steps are decided alike by kvscope" in text
    assert "Self-check:" in text
    rows = [line for line in result.stdout.splitlines() if line.startswith("│")]
    assert len(rows) >= 7
    assert sum("≈" in row for row in rows) == 7, "the options that it had make no difference"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", "max_num_seq=3"), "did you mean max_num_seqs"),
        (("--set", "max_num_seqs=many"), "takes a number from 1 on"),
        (("--set", "max_num_seqs"), "takes a number from 1 on"),
        (("--set", "tensor_parallel_size=2"), "the recorded step times would not hold"),
        (("--set", "gpu_memory_utilization=0.5"), "give the blocks themselves"),
        (("--set", "speculative_config={}"), "not validated"),
        (("--set", "watermark=0.1"), "--python"),
        (("--set", "blocks=20"), "the server would not start"),
        (("--set", "max_num_batched_tokens=8"), "at least max_num_seqs"),
        (("--set", "max_num_seqs=3", "--capacity", "9"), "leave out"),
        (("--python", "/usr/bin/python3"), "--set"),
        (("--set", "max_num_seqs=3", "--python", "/no/such/python"), "cannot be started"),
        (("--set", "max_num_seqs=3", "--python", "/bin/false"), "the worker ended"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(
    recordings: dict[str, Path], arguments: tuple[str, ...], words: str
) -> None:
    result = ask(recordings["base"], *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("hello", "pool", "change", "words"),
    [
        ({"settings": {}}, {}, "max_num_seqs=3", "lacks the scheduler's options (max_num_seqs"),
        ({"keeps_blocks": True}, {}, "max_num_seqs=3", "connector"),
        ({"settings": ASYNCHRONOUS}, {}, "max_num_seqs=3", "--no-async-scheduling"),
        ({"server": "sglang"}, {}, "max_num_seqs=3", "not of sglang"),
        ({"enable_prefix_caching": False}, {}, "enable_prefix_caching=true", "no prefix caching"),
        (
            {},
            {"groups": [CacheGroup("full_attention", 16), CacheGroup("sliding_window", 16, 64)]},
            "max_num_seqs=3",
            "several groups of layers",
        ),
    ],
)
def test_a_recording_without_a_twin_says_what_it_lacks(
    recordings: dict[str, Path],
    tmp_path: Path,
    hello: dict[str, Any],
    pool: dict[str, Any],
    change: str,
    words: str,
) -> None:
    file = tmp_path / "other.kvsr"
    alter(recordings["base"], file, {Hello: hello, PoolCreated: pool})
    result = ask(file, "--set", change)
    assert result.exit_code == 2
    assert words in result.stderr


def alter(recording: Path, file: Path, facts: dict[type, dict[str, Any]]) -> None:
    """Write the recording to `file`, with other values in events of these types."""

    def altered(event: Any) -> Any:
        return msgspec.structs.replace(event, **facts.get(type(event), {}))

    write_batches(
        file,
        (
            msgspec.structs.replace(batch, events=[altered(event) for event in batch.events])
            for batch in batches_of(recording)
        ),
    )


def test_options_that_another_scheduler_lacks_are_left_out_with_a_note(
    recordings: dict[str, Path], tmp_path: Path
) -> None:
    options = {"max_num_seqs": 32, "max_num_batched_tokens": 256, "watermark": 0.1}
    file = tmp_path / "vllm.kvsr"
    alter(
        recordings["base"],
        file,
        {Hello: {"server": "vllm", "server_version": "9", "settings": options}},
    )
    doubts = " ".join(asked(file, "--set", "max_num_seqs=3")["doubts"])
    assert "recorded with vllm 9, scheduled here by kvscope" in doubts
    assert "lacks these recorded options, which are left out: watermark" in doubts


def test_a_trace_has_no_twin(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 4, "output_length": 1, "hash_ids": [1]}\n')
    result = ask(trace, "--set", "max_num_seqs=3")
    assert result.exit_code == 2
    assert "a trace has no steps" in result.stderr


def test_clients_that_wait_are_replayed_by_their_thinking(tmp_path: Path) -> None:
    """Twelve of them ask again at once: with fewer sequences they wait, and nothing piles up."""
    files = [tmp_path / "many.kvsr", tmp_path / "few.kvsr"]
    for file, sequences in zip(files, (32, 4), strict=True):
        record_stage(file, closed_loop, **COMMON | {"max_num_seqs": sequences, "num_blocks": 900})
    found = asked(files[0], "--set", "max_num_seqs=4")
    assert found["clients_wait"] is True
    real = traffic_of(files[1])[0].measured()
    (setting,) = found["settings"]
    for name in ("ttft_p50", "tokens_per_second"):
        assert setting["predicted"][name]["middle"] == pytest.approx(real[name], rel=0.2), name


def closed_loop(stage: Any) -> None:
    random = Random(5)
    asked = 0
    for _ in range(400):
        running = stage._scheduler.num_running + stage._scheduler.num_waiting
        calls = [
            Call(
                at=0.0,
                prompt=[random.randrange(1 << 20) for _ in range(random.randrange(50, 300))],
                output_tokens=random.randrange(10, 60),
            )
            for _ in range(12 - running)
        ]
        asked += len(calls)
        stage.play(calls, 0.05)
    assert asked > 60
