"""`kvscope plan` as a user runs it."""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kvscope.cli.app import app
from tests.sizing.configs import GEMMA_3_4B, LLAMA_3_8B, QWEN3_8B, QWEN3_30B_A3B

GIB = 2**30


def kvscope(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["plan", *arguments], env={"COLUMNS": "160"})


def document(*arguments: str) -> dict[str, Any]:
    result = kvscope(*arguments, "--json")
    assert result.exit_code == 0, result.output
    parsed: dict[str, Any] = json.loads(result.stdout)
    return parsed


@pytest.fixture
def qwen(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_30B_A3B))
    return str(tmp_path)


def test_the_tables_have_the_worked_numbers(qwen: str) -> None:
    result = kvscope(qwen, "--gpu", "H200", "--max-model-len", "16384", "--concurrency", "32")
    assert result.exit_code == 0
    for words in ("96 KiB", "1.5 GiB", "48 GiB", "30.53e9, bf16", "139.8 GiB", "125.82 GiB"):
        assert words in result.stdout, words


def test_json_has_every_part(qwen: str) -> None:
    plan = document(qwen, "--gpu", "H200", "--max-model-len", "16384", "--concurrency", "32")
    assert plan["bytes"]["per_token"] == 96 * 1024
    assert plan["bytes"]["per_batch"] == 48 * GIB
    assert plan["activations"]["source"] == "estimated"
    budget = plan["budget"]["chunked"]
    parts = ("weights", "activations", "other", "kv_pool", "outside")
    assert sum(budget[part] for part in parts) == budget["total"]
    assert plan["pool"]["bytes"] == budget["kv_pool"]
    assert {"context": 16384, "batch": 32, "nbytes": 48 * GIB, "fits": True} in plan["table"]
    assert plan["reservation"][0]["paged"] > plan["reservation"][0]["naive"]


def test_numbers_instead_of_a_checkpoint() -> None:
    plan = document("--layers", "32", "--kv-heads", "8", "--head-dim", "128", "--params", "8.03e9")
    assert plan["bytes"]["per_block"] == 2**21
    assert plan["bytes"]["weights"] == 2 * 8_030_000_000
    assert plan["budget"] == {"chunked": None, "whole": None}


def test_the_checkpoints_numbers_can_be_replaced(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(QWEN3_8B))
    plan = document(str(file), "--kv-heads", "32", "--kv-dtype", "fp32")
    assert plan["bytes"]["per_sequence"] == 45 * GIB


def test_notes_name_what_is_not_known(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(GEMMA_3_4B))
    assert any("text decoder only" in note for note in document(str(file))["notes"])
    numbers = ("--layers", "2", "--kv-heads", "2", "--head-dim", "64", "--gpu", "L4")
    assert any("give --params" in note for note in document(*numbers)["notes"])
    weighed = document(*numbers, "--params", "1e9")
    assert any("--activation-memory" in note for note in weighed["notes"])


def test_quantized_weights_leave_the_cache_in_16_bits(tmp_path: Path) -> None:
    quantized = {**LLAMA_3_8B, "quantization_config": {"quant_method": "awq"}}
    (tmp_path / "config.json").write_text(json.dumps(quantized))
    plan = document(str(tmp_path), "--dtype", "int4")
    assert plan["settings"]["kv_dtype"] == "bf16"
    assert any("awq" in note for note in plan["notes"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--layers, --kv-heads, --head-dim"),
        (("--layers", "2"), "--kv-heads, --head-dim"),
        (("./nowhere",), "cannot read"),
        (
            ("--layers", "2", "--kv-heads", "2", "--head-dim", "64", "--gpu", "H300"),
            "no GPU 'H300'",
        ),
        (
            ("--layers", "2", "--kv-heads", "2", "--head-dim", "64", "--gpu-memory", "80G"),
            "unknown unit 'G'",
        ),
        (
            ("--layers", "2", "--kv-heads", "2", "--head-dim", "64", "--dtype", "fp7"),
            "unknown dtype",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments: tuple[str, ...], words: str) -> None:
    result = kvscope(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


NUMBERS = {"--layers": "2", "--kv-heads": "2", "--head-dim": "64", "--gpu": "L4"}
HUGE = "9" * 32
FLOATS = ("inf", "1e400", "1e300")


@pytest.mark.parametrize(
    ("option", "number"),
    [
        *(("--params", text) for text in FLOATS),
        *(("--layers", text) for text in (HUGE, "99999999")),
        *(("--kv-heads", HUGE), ("--head-dim", HUGE), ("--block-size", HUGE)),
        *(("--max-model-len", HUGE), ("--concurrency", HUGE), ("--max-num-batched-tokens", HUGE)),
        ("--other-memory", f"{HUGE}GiB"),
        *(("--activation-memory", "9" * 400 + "GB"), ("--host-memory", "9" * 5000)),
        ("--kv-cache-memory-bytes", HUGE),
    ],
)
def test_a_number_that_nothing_has_is_one_line(option: str, number: str) -> None:
    numbers = NUMBERS | {option: number}
    result = kvscope(*[word for pair in numbers.items() for word in pair])
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("kvscope: ")
    assert len(result.stderr.splitlines()) == 1
    assert len(result.stderr) < 300


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 10**32},
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": -4},
        {"head_dim": -128},
        {"hidden_size": 10**400},
        {"layer_types": [[]] * 48},
        {"layer_types": ["x" * 10**6] * 48},
        {"mlp_only_layers": [0] * 10**6},
        {"torch_dtype": "x" * 10**6},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_config_with_numbers_that_no_model_has_is_one_line(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_30B_A3B | changes))
    result = kvscope(str(tmp_path), "--gpu", "H200")
    assert result.exit_code == 2, result.output
    assert len(result.stderr.splitlines()) == 1
    assert len(result.stderr) < 1000


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "5", "\x00", "{} {}"])
def test_a_config_that_is_no_object_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    result = kvscope(str(tmp_path))
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["x" * 300, f"someone/{'x' * 300}", "/" + "x" * 5000, "~nobody/x"])
def test_a_name_that_no_file_can_have_is_one_line(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvscope.plan.source.find_spec", lambda name: None)
    result = kvscope(name)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


def test_a_hub_name_without_huggingface_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvscope.plan.source.find_spec", lambda name: None)
    result = kvscope("someone/model")
    assert result.exit_code == 2
    assert "huggingface_hub" in result.stderr


def test_a_hub_that_does_not_answer_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    hub = pytest.importorskip("huggingface_hub")

    def fail(model: str, file: str) -> str:
        logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 8s [Retry 5/5].")
        raise OSError("no network")

    monkeypatch.setattr(hub, "hf_hub_download", fail)
    result = kvscope("some/model", "--gpu", "L4")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert capfd.readouterr().err == ""


def test_a_hub_name_is_asked_of_the_hub(qwen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    asked = []

    def download(name: str, file: str) -> str:
        asked.append((name, file))
        return f"{qwen}/config.json"

    monkeypatch.setattr(hub, "hf_hub_download", download)
    assert document("Qwen/Qwen3-30B-A3B")["bytes"]["per_token"] == 96 * 1024
    assert asked == [("Qwen/Qwen3-30B-A3B", "config.json")]


@pytest.mark.parametrize("suffix", ["png", "svg"])
@pytest.mark.parametrize("memory", [("--gpu", "H200"), (), ("--gpu", "T4")])
def test_a_plot(tmp_path: Path, qwen: str, suffix: str, memory: tuple[str, ...]) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / f"plan.{suffix}"
    assert kvscope(qwen, *memory, "--plot", str(file)).exit_code == 0
    assert file.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")


def test_a_plot_in_an_unknown_format(tmp_path: Path, qwen: str) -> None:
    pytest.importorskip("matplotlib")
    result = kvscope(qwen, "--plot", str(tmp_path / "plan.nonsense"))
    assert result.exit_code == 2
    assert "cannot write" in result.stderr


def test_a_plot_without_matplotlib(qwen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvscope.cli.plan.find_spec", lambda name: None)
    result = kvscope(qwen, "--plot", "plan.png")
    assert result.exit_code == 2
    assert ".[plot]" in result.stderr


def test_plotting_is_loaded_only_to_plot(qwen: str) -> None:
    before = "matplotlib" in sys.modules
    document(qwen)
    assert ("matplotlib" in sys.modules) == before
