"""Every way a checkpoint can be unusable, and the one line that says so."""

import json
import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, BloomConfig, GPTJConfig, GptOssConfig

from kvscope_engine.config import ModelConfig
from kvscope_engine.model import loader
from kvscope_engine.model.errors import CheckpointError
from kvscope_engine.model.limits import max_model_len
from kvscope_engine.model.loader import load_model
from kvscope_engine.model.memory_report import weight_bytes
from tests.support.checkpoints import make_checkpoint, make_config

AGAIN = "download the checkpoint again"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("llama"), "llama")


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    """A checkpoint of the test's own to break."""
    return Path(shutil.copytree(pristine, tmp_path / "llama"))


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def error_of(folder: Path | str) -> str:
    """The message, which must be one line and begin with the model's name."""
    with pytest.raises(CheckpointError) as caught:
        load_model(ModelConfig(model=str(folder), device="cpu"))
    message = str(caught.value)
    assert message.startswith(f"{folder}: ")
    assert "\n" not in message
    return message.removeprefix(f"{folder}: ")


def _truncate(folder: Path) -> None:
    weights = folder / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-1000])


def _break_header(folder: Path) -> None:
    weights = folder / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:8] + b"#" + weights.read_bytes()[9:])


def _pickle(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(b"never opened")


BROKEN_FILES: list[tuple[str, Callable[[Path], object], str]] = [
    (
        "no config",
        lambda folder: (folder / "config.json").unlink(),
        "no config.json; give the folder that save_pretrained or the download wrote",
    ),
    (
        "config cut short",
        lambda folder: (folder / "config.json").write_text('{"model_type": '),
        f"config.json is not valid JSON (Expecting value: line 1 column 16 (char 15)); {AGAIN}",
    ),
    (
        "config is a list",
        lambda folder: (folder / "config.json").write_text("[]"),
        f"config.json is not a JSON object; {AGAIN}",
    ),
    (
        "config without a type",
        lambda folder: (folder / "config.json").write_text("{}"),
        "config.json names no model_type; use a checkpoint in transformers' format",
    ),
    (
        "no weights",
        lambda folder: (folder / WEIGHTS).unlink(),
        f"no weights: neither {WEIGHTS} nor {INDEX}; {AGAIN}",
    ),
    ("empty", lambda folder: (folder / WEIGHTS).write_bytes(b""), f"{WEIGHTS} is empty; {AGAIN}"),
    (
        "cut in the header",
        lambda folder: (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:100]),
        f"{WEIGHTS} of 100 bytes is not a whole safetensors file (invalid header length); {AGAIN}",
    ),
    (
        "LFS pointer",
        lambda folder: (folder / WEIGHTS).write_text("version https://git-lfs.github.com/spec/v1"),
        f"{WEIGHTS} is a Git LFS pointer, not weights; run `git lfs pull` in it",
    ),
    (
        "index without map",
        lambda folder: (folder / INDEX).write_text("{}"),
        f"{INDEX} has no weight_map; {AGAIN}",
    ),
]


@pytest.mark.parametrize(
    ("break_it", "message"), [case[1:] for case in BROKEN_FILES], ids=[c[0] for c in BROKEN_FILES]
)
def test_broken_files(folder: Path, break_it: Callable[[Path], object], message: str) -> None:
    break_it(folder)
    assert error_of(folder) == message


def test_a_truncated_file_says_how_much_is_there(folder: Path) -> None:
    whole = (folder / WEIGHTS).stat().st_size
    _truncate(folder)
    assert error_of(folder) == (
        f"{WEIGHTS} of {whole - 1000:,} bytes is not a whole safetensors file "
        f"(incomplete metadata, file not fully covered); {AGAIN}"
    )


def test_a_file_of_another_format_is_said_to_be_none(folder: Path) -> None:
    _break_header(folder)
    message = error_of(folder)
    assert f"{WEIGHTS} of " in message
    assert "is not a whole safetensors file (" in message
    assert "invalid JSON in header" in message


def test_missing_shards(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "sharded", "llama", max_shard_size="200KB")
    shards = sorted(folder.glob("*.safetensors"))
    assert load_model(ModelConfig(model=str(folder), device="cpu")).model.config.model_type
    shards[1].unlink()
    assert error_of(folder) == (
        f"1 of {len(shards)} weight files are missing, first {shards[1].name}; finish the download"
    )


def test_pickled_weights_are_never_opened(folder: Path) -> None:
    _pickle(folder)
    assert error_of(folder) == (
        "its weights are pickled (pytorch_model.bin), which can run code when loaded; "
        "convert them to safetensors, or take a revision that has them"
    )


def test_missing_tensors(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    del tensors["model.layers.1.mlp.up_proj.weight"], tensors["model.layers.2.mlp.up_proj.weight"]
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    assert error_of(folder) == (
        "2 tensors are missing from the weights, first model.layers.1.mlp.up_proj.weight; "
        "download the checkpoint again, or take one made for text generation"
    )


def test_tied_embeddings_are_not_missing(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "tied", "llama", tie_word_embeddings=True)
    assert "lm_head.weight" not in load_file(folder / WEIGHTS)
    loaded = load_model(ModelConfig(model=str(folder), device="cpu"))
    assert weight_bytes(loaded.model) < make_checkpoint_bytes(folder) + 1000


def make_checkpoint_bytes(folder: Path) -> int:
    return sum(tensor.nbytes for tensor in load_file(folder / WEIGHTS).values())


def test_shapes_that_do_not_fit_the_config(folder: Path) -> None:
    edit_config(folder, intermediate_size=80)
    assert error_of(folder) == (
        "model.layers.0.mlp.gate_proj.weight has the shape [96, 64], by config.json it has "
        "[80, 64]; check that config.json and the weights belong together"
    )


def test_missing_tokenizer(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()
    message = error_of(folder)
    assert message.startswith("no usable tokenizer (")
    assert message.endswith("); add the model's tokenizer.json to the folder")


def test_missing_folder() -> None:
    assert error_of("/no/such/folder") == ("no such folder; check the path given as --model")


def test_a_path_that_no_file_can_have() -> None:
    path = "/" + "x" * 250 + "y" * 50
    with pytest.raises(CheckpointError, match=r"it cannot be read \(File name too long\)"):
        load_model(ModelConfig(model=path, served_model_name="x", device="cpu"))


def test_a_name_that_the_hub_does_not_deliver(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> str:
        raise LocalEntryNotFoundError("cannot reach the hub\nmore advice")

    monkeypatch.setattr(loader, "snapshot_download", fail)
    assert error_of("someone/model") == (
        "no such folder, and the hub did not deliver it (cannot reach the hub); "
        "check the name, the network, and HF_TOKEN if access is restricted"
    )


def test_a_name_becomes_the_hubs_snapshot(pristine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def deliver(name: str, **_: object) -> str:
        asked.append(name)
        return str(pristine)

    monkeypatch.setattr(loader, "snapshot_download", deliver)
    load_model(ModelConfig(model="someone/model", device="cpu"))
    assert asked == ["someone/model"]


def test_unknown_architecture(folder: Path) -> None:
    edit_config(folder, model_type="frobnicator")
    assert error_of(folder) == (
        "this transformers does not know model type 'frobnicator'; "
        "upgrade transformers or choose another model"
    )
    edit_config(folder, auto_map={"AutoModelForCausalLM": "modeling.Frobnicator"})
    assert error_of(folder) == (
        "model type 'frobnicator' needs code from the checkpoint, which is never run; "
        "choose a model that transformers implements"
    )


DECODER_ONLY = "choose a decoder-only model with attention"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "t5"}, "t5 is an encoder-decoder, which attends across sequences"),
        ({"model_type": "vit"}, "vit has no causal language model"),
        ({"model_type": "mamba"}, "mamba has layers of type linear_attention"),
        ({"model_type": "llama4_text"}, "llama4_text has layers of type chunked_attention"),
        (
            {"model_type": "deepseek_v3"},
            "deepseek_v3 uses multi-head latent attention, K and V differ in size",
        ),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else "",
)
def test_configurations_that_are_refused(
    folder: Path, changes: dict[str, object], message: str
) -> None:
    (folder / "config.json").write_text(json.dumps(changes))
    assert error_of(folder) == f"{message}; {DECODER_ONLY}"


SMALL = {
    "vocab_size": 259,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}


def _save(folder: Path, config: transformers.PreTrainedConfig) -> None:
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def test_attention_sinks_are_refused_by_the_probe(folder: Path) -> None:
    _save(
        folder,
        GptOssConfig(
            **SMALL,
            head_dim=8,
            num_key_value_heads=2,
            num_local_experts=2,
            intermediate_size=16,
            layer_types=["full_attention"] * 2,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        ),
    )
    assert error_of(folder) == (
        "gpt_oss does not run on paged attention (GptOssAttention passes 's_aux' to attention, "
        f"which is not supported); {DECODER_ONLY}"
    )


def test_a_model_with_attention_of_its_own_is_refused(folder: Path) -> None:
    _save(folder, BloomConfig(vocab_size=259, hidden_size=32, n_layer=2, n_head=4))
    assert error_of(folder) == (f"layer 0 of bloom does not use paged attention; {DECODER_ONLY}")
    _save(folder, GPTJConfig(vocab_size=259, n_embd=32, n_layer=2, n_head=4, rotary_dim=4))
    assert error_of(folder) == (
        f"its layers take no other attention implementation; {DECODER_ONLY}"
    )


def test_the_probe_compares_logits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that transformers masks but does not hand to attention must not go unnoticed."""
    from transformers.models.llama import modeling_llama

    masked = transformers.masking_utils.create_sliding_window_causal_mask
    edit_config(folder, sliding_window=4)
    monkeypatch.setattr(modeling_llama, "create_causal_mask", masked)
    message = error_of(folder)
    assert re.match(
        r"llama gives other logits on paged attention \(torch\) than on its own "
        r"\(relative error \S+\)",
        message,
    )


def test_a_long_window_that_does_not_reach_attention(folder: Path) -> None:
    edit_config(folder, sliding_window=4096, layer_types=["sliding_attention"] * 4)
    assert error_of(folder) == (
        "layer 0 of llama has a sliding window of 4096 but passes None to attention; "
        f"{DECODER_ONLY}"
    )


def test_dtype_device_and_end_tokens(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"eos_token_id": [5, 6]}')
    loaded = load_model(ModelConfig(model=str(folder), dtype="bfloat16", device="cpu"))
    assert loaded.model.dtype == torch.bfloat16
    assert loaded.tokenizer.eos_token_ids == {5, 6, 257}
    assert load_model(ModelConfig(model=str(folder), device="cpu")).model.dtype == torch.float32


def test_loading_prints_nothing_and_logs_one_line(
    folder: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    verbosity = transformers.logging.get_verbosity()
    with caplog.at_level(logging.INFO):
        load_model(ModelConfig(model=str(folder), device="cpu"))
    assert capfd.readouterr() == ("", "")
    assert [record.name for record in caplog.records] == ["kvscope_engine.model.loader"]
    assert caplog.messages[0].startswith(f"loaded {folder}: llama, torch.float32 on cpu, ")
    assert transformers.logging.get_verbosity() == verbosity


def test_lengths() -> None:
    assert max_model_len(make_config("llama")) == 512
    dynamic = {
        "rope_type": "dynamic",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 128,
    }
    assert max_model_len(make_config("llama", rope_parameters=dynamic)) == 128
    with pytest.raises(CheckpointError, match="no max_position_embeddings"):
        max_model_len(BloomConfig())
