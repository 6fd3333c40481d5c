"""`kvscope engine serve` with a spoilt checkpoint: one line and exit code 2, or right tokens."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.checkpoints import make_checkpoint
from tests.support.process import START_SECONDS, forked_kvscope

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
