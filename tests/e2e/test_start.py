"""Anything that cannot be served is reported in one line, with exit code 2 and no traceback."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kvscope.cli.app import app
from tests.support.checkpoints import make_checkpoint

SMALL_POOL = ("--num-gpu-blocks-override", "64")


def serve(*arguments: str, **environment: str) -> Any:
    """In this process, which has torch already; for starts that fail."""
    return CliRunner().invoke(app, ["engine", "serve", "--port", "0", *arguments], env=environment)


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
        ("--port", "KVSCOPE_ENGINE_SERVE_PORT", "80a0"),
        ("--port", "KVSCOPE_ENGINE_SERVE_PORT", "65536"),
        ("--max-num-seqs", "KVSCOPE_ENGINE_SERVE_MAX_NUM_SEQS", "0"),
        ("--dtype", "KVSCOPE_ENGINE_SERVE_DTYPE", "float8"),
        ("--drain-seconds", "KVSCOPE_ENGINE_SERVE_DRAIN_SECONDS", "nan"),
        ("--stall-seconds", "KVSCOPE_ENGINE_SERVE_STALL_SECONDS", "nan"),
        ("--seed", "KVSCOPE_ENGINE_SERVE_SEED", str(10**30)),
    ],
)
def test_bad_values_are_named_by_flag_and_variable(option: str, variable: str, value: str) -> None:
    by_flag = CliRunner().invoke(app, ["engine", "serve", option, value])
    by_variable = CliRunner().invoke(app, ["engine", "serve"], env={variable: value})
    for result in (by_flag, by_variable):
        assert result.exit_code == 2
        assert option in result.output
        assert variable in result.output


def test_a_flag_wins_over_its_variable() -> None:
    result = serve(
        "--num-gpu-blocks-override", "3", KVSCOPE_ENGINE_SERVE_NUM_GPU_BLOCKS_OVERRIDE="4"
    )
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
        (
            ("--compat", "bogus"),
            "'bogus' is unknown; expected vllm, vllm-legacy, vllm-residency, or none",
        ),
        (("--metrics-port", "0", "--disable-log-stats"), "with --disable-log-stats: drop one"),
        (
            ("--metrics-port", "0", "--no-exporter", "--event-endpoint", "tcp://127.0.0.1:0"),
            "with --no-exporter: drop one",
        ),
        (("--no-exporter",), "add --event-endpoint, or give --disable-log-stats instead"),
        (
            ("--event-endpoint", "tcp://127.0.0.1:0", "--disable-log-stats"),
            "nothing to publish with --disable-log-stats",
        ),
        (("--event-endpoint", "tcp://192.0.2.1:5557"), "not a loopback address"),
        (("--event-endpoint", "nonsense"), "not an endpoint of the wire"),
        (("./here", "--model", "./there"), "two models, ./here and --model ./there: give one"),
        (("--api-key", ""), "api_key must not be empty"),
        (("--api-key", "ab\udcff"), "api_key is not UTF-8"),
        (("--api-key", "a b"), "api_key has a space"),
        (("--api-key-file", "missing.txt"), "--api-key-file: missing.txt: cannot be read"),
        (("--metrics-key-file", "missing.txt"), "--metrics-key-file: missing.txt: cannot be read"),
        (("--web-config-file", "missing.yml"), "missing.yml: cannot be read: No such file"),
        (("--ssl-keyfile", "key.pem"), "--ssl-keyfile without --ssl-certfile"),
        (("--ssl-certfile", "missing.pem"), "missing.pem: cannot be read: No such file"),
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
    assert "is not a whole safetensors file" in refusal("--model", str(folder))
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


def test_the_model_is_an_argument_or_an_option(tmp_path: Path) -> None:
    here, there = str(tmp_path / "here"), str(tmp_path / "there")
    assert f"{here}: no such folder" in refusal(here)
    assert f"{here}: no such folder" in refusal("--model", here)
    assert f"{here}: no such folder" in refusal(here, "--model", here)
    result = serve(here, KVSCOPE_ENGINE_SERVE_MODEL=there)
    assert f"{here}: no such folder" in result.output, "what is on the command line wins"


def test_the_page_has_the_names_of_current_vllm_alone_by_default() -> None:
    result = CliRunner().invoke(app, ["engine", "serve", "--help"], env={"COLUMNS": "200"})
    assert "or none. [default: vllm]" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "name a server to watch"),
        (("--events", "tcp://127.0.0.1:5557", "--events", "tcp://127.0.0.1:5557"), "given twice"),
        (("--events", "nonsense"), "expected NAME=ENDPOINT or ENDPOINT"),
        (("--events", "a=tcp://192.0.2.1:5557"), "not a loopback address"),
        (("--events", "a=tcp://127.0.0.1:5557", "--address", "a b"), "expected HOST:PORT"),
        (("--events", "a=tcp://127.0.0.1:5557", "--compat", "bogus"), "'bogus' is unknown"),
        (("--events", "a=tcp://127.0.0.1:5557", "--host", "192.0.2.1"), "cannot listen on"),
    ],
)
def test_what_a_sidecar_cannot_watch_is_one_line(arguments: tuple[str, ...], says: str) -> None:
    result = CliRunner().invoke(app, ["sidecar", "--port", "0", "--no-gpu", *arguments])
    assert result.exit_code == 2, result.output
    (line,) = [line for line in result.output.splitlines() if line.startswith("kvscope: ")]
    assert says in line
