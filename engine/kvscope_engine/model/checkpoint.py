"""A checkpoint's files, checked before anything is loaded from them.

Opens only headers: a truncated shard of 5 GB is found in a millisecond. Anything not checked here
is not loaded: a layout that transformers would read past these checks is refused.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kvscope_engine.json_file import JsonFileError, read_json_object
from kvscope_engine.model.errors import CheckpointError
from kvscope_engine.model.safetensors_file import (
    SafetensorsError,
    StoredTensor,
    read_header,
)
from kvscope_engine.sizing.config_json import CONFIG, MAX_CONFIG_BYTES
from kvscope_events.printable import one_line

GENERATION = "generation_config.json"
_OF_TOKENIZER = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
"""Small files, so that errors of the libraries can only be about tokenizer.json."""
_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_DISTRIBUTED = re.compile(r"shard-\d{5}-model-\d{5}-of-\d{5}\.safetensors")
"""Files that transformers prefers to all others."""
_AGAIN = "download the checkpoint again"

MAX_INDEX_BYTES = 64 * 2**20
"""Bytes of the index of the weight files; those of the largest models have 20 MB."""
_VOCABULARY_BYTES = 512 * 2**20
"""Bytes of a file of a tokenizer; the largest have 40 MB."""
_TEMPLATE_BYTES = 2**20
"""Bytes of a chat template; the longest have 20 kB."""
_MAX_BYTES = {
    **dict.fromkeys((".json", ".model", ".tiktoken", ".txt"), _VOCABULARY_BYTES),
    ".jinja": _TEMPLATE_BYTES,
    ".safetensors": 2**63,
}
"""Bytes of the files that libraries may open, by suffix."""
_TEMPLATES = "additional_chat_templates"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFiles:
    """The contents of the checked files."""

    config: Mapping[str, object]
    """config.json."""
    generation: Mapping[str, object]
    """generation_config.json; empty if missing."""
    tensors: Mapping[str, StoredTensor]
    """All tensors of all weight files by name."""


def check_files(folder: Path) -> CheckedFiles:
    """Check that every required file is present and complete; reads only JSON and headers.

    Raises CheckpointError.
    """
    name = str(folder)
    try:
        return _checked(folder, name)
    except OSError as error:
        problem = f"it cannot be read ({one_line(error.strerror or str(error))})"
        raise CheckpointError(name, problem, "check path and permissions") from error


def _checked(folder: Path, name: str) -> CheckedFiles:
    if not folder.is_dir():
        raise CheckpointError(name, "no such folder", "check the path given as --model")
    _check_kinds(folder, name)
    if not (folder / CONFIG).is_file():
        raise CheckpointError(
            name, "no config.json", "give the folder that save_pretrained or the download wrote"
        )
    config = _read_json(folder, CONFIG, MAX_CONFIG_BYTES)
    if "transformers_weights" in config:
        raise CheckpointError(
            name, "config.json names its weights (transformers_weights)", "name them as others do"
        )
    generation = {}
    if (folder / GENERATION).is_file():
        generation = _read_json(folder, GENERATION, MAX_CONFIG_BYTES)
    for file_name in _OF_TOKENIZER:
        if (folder / file_name).is_file():
            _read_json(folder, file_name, MAX_CONFIG_BYTES)
    return CheckedFiles(config=config, generation=generation, tensors=_tensors(folder))


def _check_kinds(folder: Path, name: str) -> None:
    """Refuse files that would block a reader or fill the memory."""
    paths = [*folder.iterdir(), *(folder / _TEMPLATES).glob("*.jinja")]
    for path in sorted(paths):
        most = _MAX_BYTES.get(path.suffix)
        if not path.is_file() and (most or path.is_fifo() or path.is_char_device()):
            raise CheckpointError(name, f"{path.name} is not a file", _AGAIN)
        if most and path.stat().st_size > most:
            raise CheckpointError(name, f"{path.name} is larger than {most:,} bytes", _AGAIN)
        if _DISTRIBUTED.fullmatch(path.name):
            raise CheckpointError(
                name,
                f"it is a checkpoint of a distributed run ({path.name})",
                "save it with save_pretrained",
            )


def _tensors(folder: Path) -> dict[str, StoredTensor]:
    """All tensors. Raises if a weight file, or all of them, are missing or corrupt."""
    name = str(folder)
    weight_map: dict[str, str] = {}
    if (folder / _INDEX).is_file():
        weight_map = _weight_map(folder)
    shards = sorted(set(weight_map.values()))
    if not shards and not (folder / _SINGLE).is_file():
        raise _no_weights(folder)
    missing = [shard for shard in shards if not (folder / shard).is_file()]
    if missing:
        raise CheckpointError(
            name,
            f"{len(missing)} of {len(shards)} weight files are missing, first {missing[0]}",
            "finish the download",
        )
    if (folder / _SINGLE).is_file():  # transformers reads this one even beside an index
        return _header(folder, _SINGLE)
    tensors: dict[str, StoredTensor] = {}
    for shard in shards:
        stored = _header(folder, shard)
        for tensor in stored:
            if tensor in tensors:
                raise CheckpointError(
                    name, f"{shard} repeats {tensor}, which another weight file has", _AGAIN
                )
        tensors |= stored
    absent = sorted(weight_map.keys() - tensors.keys())
    if absent:
        raise CheckpointError(
            name, f"{_INDEX} lists {absent[0]}, which is in no weight file", _AGAIN
        )
    return tensors


def _weight_map(folder: Path) -> dict[str, str]:
    """Tensor to weight file. The files are in the folder itself."""
    name = str(folder)
    weight_map = _read_json(folder, _INDEX, MAX_INDEX_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(name, f"{_INDEX} has no weight_map", _AGAIN)
    for shard in weight_map.values():
        if not isinstance(shard, str) or not shard.endswith(".safetensors") or "/" in shard:
            raise CheckpointError(
                name, f"{_INDEX} names a weight file {one_line(repr(shard), 80)}", _AGAIN
            )
    return weight_map


def _no_weights(folder: Path) -> CheckpointError:
    name = str(folder)
    pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickles:
        return CheckpointError(
            name,
            f"its weights are pickled ({pickles[0]}), which can run code when loaded",
            "convert them to safetensors, or take a revision that has them",
        )
    return CheckpointError(name, f"no weights: neither {_SINGLE} nor {_INDEX}", _AGAIN)


def _header(folder: Path, shard: str) -> dict[str, StoredTensor]:
    try:
        return read_header(folder / shard)
    except SafetensorsError as error:
        remedy = "run `git lfs pull` in it" if error.is_pointer else _AGAIN
        raise CheckpointError(str(folder), f"{shard} {error}", remedy) from error


def _read_json(folder: Path, file_name: str, max_bytes: int) -> dict[str, object]:
    try:
        return read_json_object(folder / file_name, max_bytes)
    except JsonFileError as error:
        raise CheckpointError(str(folder), f"{file_name} {error}", _AGAIN) from error
