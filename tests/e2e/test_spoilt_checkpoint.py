"""`kvscope engine serve` with a spoilt checkpoint: one line and exit code 2, or right tokens."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from kvscope_engine.config import ModelConfig
from kvscope_engine.model.loader import load_model
from tests.support.checkpoints import make_checkpoint
from tests.support.process import START_SECONDS, forked_kvscope
from tests.support.server import greedy
from tools.fuzz.checkpoints import transformers_tokens

PROMPT = "The cache of a server"


def edit(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def overlap(folder: Path) -> None:
    """Let a tensor begin where the first one does."""
    file = folder / "model.safetensors"
    content = file.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    name = next(reversed(header))
    begin, end = header[name]["data_offsets"]
    header[name]["data_offsets"] = [0, end - begin]
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + content[start:])


FAULTS: dict[str, Callable[[Path], object]] = {
    "a lying header": overlap,
    "a trillion parameters": lambda folder: edit(folder, intermediate_size=10**12),
}


@pytest.mark.slow
@pytest.mark.parametrize("spoil", FAULTS.values(), ids=FAULTS)
def test_a_spoilt_checkpoint_ends_the_server_with_one_line(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    folder = make_checkpoint(tmp_path / "model", "llama")
    spoil(folder)
    with forked_kvscope("engine", "serve", str(folder), "--port", "0") as process:
        assert process.wait(START_SECONDS) == 2
    logged, error = process.lines[:-1], process.lines[-1]
    assert error.startswith(f"kvscope: {folder}: ")
    assert all(" INFO " in line for line in logged), logged


@pytest.mark.nightly
def test_a_checkpoint_with_a_fault_that_does_not_matter_gives_its_tokens(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "model", "llama")
    tokenizer = load_model(ModelConfig(model=str(folder), device="cpu")).tokenizer
    expected = transformers_tokens(folder, tokenizer.encode(PROMPT), 8)
    edit(folder, transformers_version=5, intermediate_sizes=[[None]])
    (folder / "generation_config.json").write_text('{"temperature": "hot", "max_length": -1}')
    with forked_kvscope(
        "engine", "serve", str(folder), "--port", "0", "--max-model-len", "256"
    ) as process:
        url = process.find(r"serving \S+ at (\S+)/v1")
        answer = httpx.post(f"{url}/v1/completions", json=greedy(PROMPT, max_tokens=8)).json()
        process.send(signal.SIGTERM)
        assert process.wait() == 0
    assert answer["choices"][0]["text"] == tokenizer.decode(expected)
