"""`kvscope plan` as a user runs it."""

import json
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kvscope.cli.app import app
from kvscope.plan.parallel import TIMES
from tests.sizing.configs import AWQ, GEMMA_3_4B, LLAMA_3_8B, LLAMA_70B, QWEN3_8B, QWEN3_30B_A3B

GIB = 2**30


def kvscope(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["plan", *arguments], env={"COLUMNS": "160"})


def document(*arguments: str) -> dict[str, Any]:
    result = kvscope(*arguments, "-o", "json")
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
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA_3_8B, "quantization_config": AWQ}))
    plan = document(str(tmp_path))
    assert plan["settings"]["kv_dtype"] == "bf16"
    assert plan["settings"]["weights"] == "AWQ 4 bits, the rest bf16"
    assert (
        plan["bytes"]["weights"] == document(str(tmp_path), "--dtype", "int4")["bytes"]["weights"]
    )


def test_an_unknown_quantization_can_be_replaced_by_a_type(tmp_path: Path) -> None:
    unknown = {**LLAMA_3_8B, "quantization_config": {"quant_method": "future"}}
    (tmp_path / "config.json").write_text(json.dumps(unknown))
    refused = kvscope(str(tmp_path))
    assert refused.exit_code == 2
    assert "quantization method 'future' is not known" in refused.stderr
    assert document(str(tmp_path), "--dtype", "fp8")["settings"]["weights"].startswith("fp8")


def test_the_first_line_says_how_many_gpus(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_70B))
    length = ("--max-model-len", "32768", "--concurrency", "8")
    result = kvscope(str(tmp_path), "--gpu", "H100", *length)
    assert result.exit_code == 0
    first = result.stdout.splitlines()[0]
    assert first.startswith(f"4 {TIMES} H100-80GB (TP 4) for 8 sequences of 32,768 tokens, up to 1")


def test_gpus_that_hold_no_sequence_are_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_70B))
    length = ("--max-model-len", "32768", "--concurrency", "8")
    result = kvscope(str(tmp_path), "--gpu", "H100", "--tensor-parallel-size", "1", *length)
    assert result.exit_code == 1
    first = result.stdout.splitlines()[0]
    assert first.startswith(
        f"1 {TIMES} H100-80GB cannot hold one of the sequences of 32,768 tokens, 6"
    )
    four = f"4 {TIMES} H100-80GB (TP 4)"
    assert f"short on each; {four} for one, {four} for 8" in first


def test_a_pool_that_holds_no_sequence_is_exit_code_1(qwen: str) -> None:
    result = kvscope(qwen, "--kv-cache-memory-bytes", "1GiB")
    assert result.exit_code == 1
    assert result.stdout.startswith("The pool holds 0.27 sequences of 40,960 tokens")


@pytest.mark.parametrize(
    "option", ["--gpu-memory", "--host-memory", "--kv-cache-memory-bytes", "--kv-offloading-size"]
)
def test_a_bare_number_that_would_be_a_few_bytes_is_refused(qwen: str, option: str) -> None:
    result = kvscope(qwen, option, "80")
    assert result.exit_code == 2
    assert f"{option} 80 would be 80 bytes: say 80GB or 80GiB" in result.stderr


def test_a_length_beyond_the_models_own_is_remarked(qwen: str) -> None:
    notes = document(qwen, "--max-model-len", "99999999")["notes"]
    assert any("more than the model's own limit of 40,960" in note for note in notes)


def test_a_model_is_divided_among_gpus_as_told(qwen: str) -> None:
    plan = document(qwen, "--gpu", "H100", "-tp", "2", "-pp", "2", "-dp", "2")
    assert plan["settings"]["gpus"] == 8
    assert plan["bytes"]["per_token"] == 96 * 1024 // 4
    assert plan["bytes"]["weights"] < plan["bytes"]["checkpoint"] / 4


def test_drafts_adapters_and_a_host_tier_take_their_part(qwen: str, tmp_path: Path) -> None:
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "config.json").write_text(json.dumps(LLAMA_3_8B))
    speculative = json.dumps({"model": str(tmp_path / "draft"), "num_speculative_tokens": 3})
    common = (qwen, "--gpu", "H200", "--max-model-len", "16384")
    plain = document(*common)
    drafted = document(*common, "--speculative-config", speculative)
    assert drafted["bytes"]["weights"] - plain["bytes"]["weights"] == 16_060_522_496
    assert drafted["bytes"]["per_token"] - plain["bytes"]["per_token"] == 128 * 1024
    adapted = document(*common, "--max-loras", "4", "--max-lora-rank", "16")
    taken = adapted["budget"]["chunked"]["adapters"]
    assert taken > 0
    assert plain["pool"]["bytes"] - adapted["pool"]["bytes"] >= taken - 2**21
    tiered = document(*common, "--kv-offloading-size", "48GiB")
    assert tiered["tier"]["full_sequences"] == 32


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "--speculative-config"),
        ('{"num_speculative_tokens": 0, "method": "ngram"}', "must be positive"),
        ('{"num_speculative_tokens": 2, "method": "eagle"}', "needs a model"),
    ],
)
def test_a_speculative_config_that_cannot_be_used_is_one_line(
    qwen: str, text: str, words: str
) -> None:
    result = kvscope(qwen, "--speculative-config", text)
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


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
        if file != "config.json":
            raise FileNotFoundError(file)
        return f"{qwen}/config.json"

    monkeypatch.setattr(hub, "hf_hub_download", download)
    headers = SimpleNamespace(tensors={"w": SimpleNamespace(dtype="BF16", shape=[1000, 1000])})
    metadata = SimpleNamespace(files_metadata={"model.safetensors": headers})
    monkeypatch.setattr(hub.HfApi, "get_safetensors_metadata", lambda api, name: metadata)
    planned = document("Qwen/Qwen3-30B-A3B")
    assert planned["bytes"]["per_token"] == 96 * 1024
    assert planned["bytes"]["checkpoint"] == 2_000_000
    assert [file for _, file in asked] == ["config.json", "hf_quant_config.json"]


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


def test_plotting_is_loaded_only_to_plot(qwen: str) -> None:
    before = "matplotlib" in sys.modules
    document(qwen)
    assert ("matplotlib" in sys.modules) == before
