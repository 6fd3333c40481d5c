"""Spoilt checkpoints: those that Hypothesis draws, and those that it may not hit."""

import json
import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.checkpoints import make_checkpoint
from tools.fuzz.checkpoints import INDEX, Templates, Verdict, judge

WEIGHTS = "model.safetensors"
PEAK_MIB = 400
"""Memory beyond what the process had before, whatever a checkpoint asks for."""


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("llama"), "llama")


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Templates:
    return Templates(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    """A checkpoint of the test's own to spoil."""
    return Path(shutil.copytree(pristine, tmp_path / "llama"))


@pytest.fixture(autouse=True)
def _memory_is_bounded() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < PEAK_MIB * 1024


def edit(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def edit_header(folder: Path, **changes: object) -> None:
    """Change the entry of the embedding."""
    content = (folder / WEIGHTS).read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header["model.embed_tokens.weight"] |= changes
    text = json.dumps(header).encode()
    (folder / WEIGHTS).write_bytes(len(text).to_bytes(8, "little") + text + content[start:])


def refused(folder: Path) -> str:
    verdict = judge(folder)
    assert verdict.outcome == "refused", verdict
    return verdict.detail


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_spoilt_checkpoints_are_refused_in_one_line_or_served_right(
    templates: Templates, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory(prefix="kvscope-spoilt-") as name:
        folder = Path(name, "variant")
        fault = templates.spoilt(folder, data.draw)
        verdict = judge(folder)
    assert verdict.good, (fault, verdict)


def test_sound_checkpoints_are_served(templates: Templates) -> None:
    for folder in templates.folders:
        assert judge(folder).outcome == "served", folder


NESTED: list[Callable[[], bytes]] = [lambda: b"[" * 100_000, lambda: b'{"a":' * 100_000]


@pytest.mark.parametrize("text", NESTED)
@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json"])
def test_a_file_nested_100_000_deep_is_refused(
    folder: Path, name: str, text: Callable[[], bytes]
) -> None:
    (folder / name).write_bytes(text())
    assert refused(folder) == (f"{name} nests deeper than 64 levels; download the checkpoint again")


def test_a_tokenizer_nested_100_000_deep_is_refused(folder: Path) -> None:
    (folder / "tokenizer.json").write_bytes(b"[" * 100_000)
    assert refused(folder).startswith("no usable tokenizer (")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_hidden_layers": 10**9}, "asks for too many num_hidden_layers"),
        ({"num_labels": 10**9}, "asks for too many num_labels"),
        ({"num_hidden_layers": 60_000}, "asks for 60000 layers, of 39 tensors"),
        ({"vocab_size": 10**11}, "weights, the files hold 156,608"),
        ({"intermediate_size": 10**12}, "weights, the files hold 156,608"),
        ({"intermediate_size": 10**6}, "weights, the files hold 156,608"),
    ],
)
def test_a_config_of_a_trillion_parameters_is_refused_before_allocation(
    folder: Path, changes: dict[str, object], words: str
) -> None:
    edit(folder, **changes)
    assert words in refused(folder)


def test_a_model_larger_than_the_free_memory_is_refused_before_allocation(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvscope_engine.sizing.MainMemory.free", lambda self: 2**19)
    assert "but 512 KiB are free; choose a smaller model" in refused(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data_offsets": [0, 259 * 64 * 4]}, "invalid offset for tensor"),
        ({"data_offsets": [-8, 259 * 64 * 4 - 8]}, "invalid value: integer `-8`"),
        ({"shape": [259, 65]}, "invalid shape, data type, or offset for tensor"),
        ({"shape": [-259, -64]}, "invalid value: integer `-259`"),
        ({"shape": [True, 259 * 64]}, "invalid type: boolean `true`"),
        ({"shape": [2**40, 2**40]}, "overflow computing buffer size"),
        ({"dtype": "F16"}, "invalid shape, data type, or offset for tensor"),
        ({"dtype": "I32"}, "stored as I32, which is not a type of weights"),
        ({"dtype": "F33"}, "unknown variant `F33`"),
        ({"shape": [64, 259]}, "has the shape [64, 259], by config.json it has [259, 64]"),
    ],
)
def test_a_header_that_lies_is_refused(
    folder: Path, changes: dict[str, object], words: str
) -> None:
    edit_header(folder, **changes)
    assert words in refused(folder)


@pytest.mark.parametrize("eos", [[[5]], [{}], "257", 2.5, True, {"a": 1}, [5, "x"]])
def test_end_tokens_that_are_none_are_refused(folder: Path, eos: object) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": eos}))
    assert refused(folder).startswith(
        "generation_config.json has an eos_token_id that is not a token: "
    )


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "qwen.tiktoken", "more", "additional_chat_templates/tool.jinja"]
)
def test_what_would_block_a_reader_is_refused(folder: Path, name: str) -> None:
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)
    os.mkfifo(file)
    assert refused(folder).startswith(f"{file.name} is not a file; ")


def test_a_template_of_megabytes_is_refused(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("x" * (2**20 + 1))
    assert refused(folder).startswith("chat_template.jinja is larger than 1,048,576 bytes; ")


@pytest.mark.parametrize("place", ["/etc/passwd", "../model.safetensors", 5, None, ["x"], ""])
def test_an_index_names_files_of_its_own_folder(folder: Path, place: object) -> None:
    (folder / WEIGHTS).unlink()
    (folder / INDEX).write_text(json.dumps({"weight_map": {"lm_head.weight": place}}))
    assert refused(folder).startswith(f"{INDEX} names a weight file ")


def test_weights_that_give_no_numbers_are_refused(folder: Path) -> None:
    content = (folder / WEIGHTS).read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    (folder / WEIGHTS).write_bytes(content[:start] + b"\xff" * (len(content) - start))
    assert refused(folder).startswith("its weights give no numbers")


def test_weights_beside_those_that_were_checked_are_not_loaded(folder: Path) -> None:
    (folder / "shard-00001-model-00001-of-00001.safetensors").write_bytes(b"unchecked")
    assert "a checkpoint of a distributed run" in refused(folder)
    (folder / "shard-00001-model-00001-of-00001.safetensors").unlink()
    edit(folder, transformers_weights="other.safetensors")
    assert "names its weights" in refused(folder)


def test_the_program_finds_wrong_tokens(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison would be worth nothing if it always held."""
    monkeypatch.setattr(
        "kvscope_engine.model.tokenizer.Tokenizer.encode", lambda self, text: [1, 2, 3]
    )
    assert judge(folder) == Verdict("wrong", judge(folder).detail)


def test_fewer_layers_than_the_weights_hold_are_said(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    edit(folder, num_hidden_layers=3)
    assert judge(folder).outcome == "served"
    assert "9 tensors are not used, first model.layers.3." in caplog.text


def test_names_of_tensors_cannot_write_lines_of_the_log(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = (folder / WEIGHTS).read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header["a\n12:00:00 INFO kvscope: all is well"] = {
        "dtype": "F32",
        "shape": [0],
        "data_offsets": [0, 0],
    }
    text = json.dumps(header).encode()
    (folder / WEIGHTS).write_bytes(len(text).to_bytes(8, "little") + text + content[start:])
    assert judge(folder).outcome == "served"
    warned = [message for message in caplog.messages if "are not used" in message]
    assert warned
    assert all("\n" not in message for message in warned)
