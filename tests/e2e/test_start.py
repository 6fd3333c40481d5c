"""What cannot be served is said in one line, with exit code 2 and no traceback."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from exporter.cli.app import app
from tests.support.checkpoints import make_checkpoint
from tests.support.process import kvscope

SMALL_POOL = ("--num-gpu-blocks-override", "64")


def serve(*arguments: str, **environment: str) -> Any:
    """In this process, which has torch already; for starts that fail."""
    return CliRunner().invoke(app, ["serve", "--port", "0", *arguments], env=environment)


def refusal(*arguments: str) -> str:
    """The one line of a start that fails, loading messages apart."""
    result = serve(*arguments)
    assert result.exit_code == 2, result.output
    lines: list[str] = [line for line in result.output.splitlines() if line.startswith("kvscope: ")]
    assert len(lines) == 1, result.output
    assert "Traceback" not in result.output
    return lines[0]


@pytest.mark.parametrize(
    ("option", "variable", "value"),
    [
        ("--port", "KVSCOPE_PORT", "80a0"),
        ("--port", "KVSCOPE_PORT", "65536"),
        ("--max-num-seqs", "KVSCOPE_MAX_NUM_SEQS", "0"),
        ("--dtype", "KVSCOPE_DTYPE", "float8"),
        ("--drain-seconds", "KVSCOPE_DRAIN_SECONDS", "nan"),
        ("--stall-seconds", "KVSCOPE_STALL_SECONDS", "nan"),
        ("--seed", "KVSCOPE_SEED", str(10**30)),
    ],
)
def test_bad_values_are_named_by_flag_and_variable(option: str, variable: str, value: str) -> None:
    by_flag = CliRunner().invoke(app, ["serve", option, value])
    by_variable = CliRunner().invoke(app, ["serve"], env={variable: value})
    for result in (by_flag, by_variable):
        assert result.exit_code == 2
        assert option in result.output
        assert variable in result.output


def test_every_option_of_every_command_has_a_variable() -> None:
    for command, options in {
        "serve": ("MODEL", "ENABLE_PREFIX_CACHING", "DISABLE_LOG_STATS", "API_KEY"),
        "demo": ("PORT", "DURATION"),
        "load": ("URL", "API_KEY", "MAX_TOKENS"),
    }.items():
        result = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "300"})
        for option in options:
            assert f"KVSCOPE_{option}" in result.output, (command, option)
    assert "KVSCOPE_MAX_NUM_SEQS" in CliRunner().invoke(app, ["--help"]).output


def test_a_flag_wins_over_its_variable() -> None:
    result = serve("--num-gpu-blocks-override", "3", KVSCOPE_NUM_GPU_BLOCKS_OVERRIDE="4")
    assert "a pool of 3 blocks" in result.output


def test_a_pool_too_small_is_refused_with_the_numbers() -> None:
    line = refusal("--num-gpu-blocks-override", "31", "--max-model-len", "512")
    assert "31 blocks" in line
    assert "496 tokens" in line
    assert "needs 32 blocks" in line


def test_a_pool_larger_than_the_memory_is_refused_with_the_numbers() -> None:
    line = refusal("--num-gpu-blocks-override", str(10**12))
    assert "GiB are free" in line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--max-model-len", "100000"), "over the checkpoint's 4096 positions"),
        (("--max-num-seqs", "100", "--max-num-batched-tokens", "10"), "max_num_batched_tokens"),
        (("--compat", "bogus"), "'bogus' is unknown; expected vllm, vllm-legacy, or none"),
        (("--metrics-port", "0", "--disable-log-stats"), "--metrics-port"),
        (("--api-key", ""), "api_key must not be empty"),
        (("--host", "a..b"), "cannot listen on a..b"),
        (("--host", "192.0.2.1"), "cannot listen on 192.0.2.1"),
        (("--metrics-host", "192.0.2.1", "--metrics-port", "0", *SMALL_POOL), "for metrics"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_settings_that_cannot_be_are_one_line(arguments: tuple[str, ...], expected: str) -> None:
    arguments = (*arguments, "--max-model-len", "1024") if arguments[-1] == "64" else arguments
    assert expected in refusal(*arguments)


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"127.0.0.1:{port} (Address already in use" in refusal("--port", port)
        line = refusal("--max-model-len", "1024", *SMALL_POOL, "--metrics-port", port)
        assert f"127.0.0.1:{port} for metrics (Address already in use" in line


def test_a_missing_folder_is_one_line(tmp_path: Path) -> None:
    assert "no such folder" in refusal("--model", str(tmp_path / "nothing"))


def test_a_half_downloaded_checkpoint_is_one_line(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, "llama")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "its header says" in refusal("--model", str(folder))
    weights.unlink()
    assert "no weights" in refusal("--model", str(folder))


def test_pickled_weights_are_one_line(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, "llama")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "pickled" in refusal("--model", str(folder))


def test_an_unsupported_architecture_is_one_line(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, "llama")
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(
        json.dumps(config | {"model_type": "mamba", "architectures": ["MambaForCausalLM"]})
    )
    assert "mamba" in refusal("--model", str(folder))


def test_a_device_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "no CUDA device" in refusal("--device", "cuda")


@pytest.mark.slow
def test_a_failing_process_writes_one_line(tmp_path: Path) -> None:
    with kvscope("serve", "--port", "0", "--model", str(tmp_path)) as process:
        assert process.wait(60) == 2
    assert process.lines == [
        f"kvscope: {tmp_path}: no config.json; give the folder that save_pretrained or the "
        "download wrote\n"
    ]
