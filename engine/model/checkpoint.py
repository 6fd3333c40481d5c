"""A checkpoint's files, checked before anything is loaded from them.

Opens only headers: a truncated shard of 5 GB is found in a millisecond.
"""

import json
from pathlib import Path

from engine.model.errors import (
    CheckpointFileError,
    CheckpointNotFoundError,
    UnsafeWeightsError,
)

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_AGAIN = "download the checkpoint again"
_LFS_POINTER = b"version https://git-lfs"


def check_files(folder: Path) -> dict[str, object]:
    """The parsed config.json, once every file that is needed is there and whole.

    Raises CheckpointNotFoundError, CheckpointFileError or UnsafeWeightsError. Reads only headers.
    """
    name = str(folder)
    if not folder.is_dir():
        raise CheckpointNotFoundError(name, "no such folder", "check the path given as --model")
    if not (folder / "config.json").is_file():
        raise CheckpointFileError(
            name, "no config.json", "give the folder that save_pretrained or the download wrote"
        )
    config = _read_json(folder, "config.json")
    for shard in _shards(folder):
        _check_shard(folder, shard)
    return config


def _shards(folder: Path) -> list[str]:
    """Names of the weight files. Raises if there are none, or if some are missing."""
    name = str(folder)
    if (folder / _INDEX).is_file():
        weight_map = _read_json(folder, _INDEX).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise CheckpointFileError(name, f"{_INDEX} has no weight_map", _AGAIN)
        shards = sorted({str(shard) for shard in weight_map.values()})
        missing = [shard for shard in shards if not (folder / shard).is_file()]
        if missing:
            raise CheckpointFileError(
                name,
                f"{len(missing)} of {len(shards)} weight files are missing, first {missing[0]}",
                "finish the download",
            )
        return shards
    if (folder / _SINGLE).is_file():
        return [_SINGLE]
    pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickles:
        raise UnsafeWeightsError(
            name,
            f"its weights are pickled ({pickles[0]}), which can run code when loaded",
            "convert them to safetensors, or take a revision that has them",
        )
    raise CheckpointFileError(name, f"no weights: neither {_SINGLE} nor {_INDEX}", _AGAIN)


def _check_shard(folder: Path, shard: str) -> None:
    """Header and length of a safetensors file: 8 bytes of header size, header, tensor bytes."""
    name, path = str(folder), folder / shard
    size = path.stat().st_size
    if size == 0:
        raise CheckpointFileError(name, f"{shard} is empty", _AGAIN)
    with path.open("rb") as file:
        prefix = file.read(8)
        header_size = int.from_bytes(prefix, "little")
        if _LFS_POINTER.startswith(prefix):
            raise CheckpointFileError(
                name, f"{shard} is a Git LFS pointer, not weights", "run `git lfs pull` in it"
            )
        if len(prefix) < 8 or 8 + header_size > size:
            raise CheckpointFileError(name, f"{shard} ends inside its header", _AGAIN)
        header = file.read(header_size)
    try:
        tensors = json.loads(header)
        ends = [entry["data_offsets"][1] for key, entry in tensors.items() if key != "__metadata__"]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise CheckpointFileError(
            name, f"{shard} is no safetensors file (bad header)", _AGAIN
        ) from error
    expected = 8 + header_size + max(ends, default=0)
    if size != expected:
        raise CheckpointFileError(
            name, f"{shard} has {size:,} bytes, its header says {expected:,}", _AGAIN
        )


def _read_json(folder: Path, file_name: str) -> dict[str, object]:
    try:
        content = json.loads((folder / file_name).read_bytes())
    except ValueError as error:
        raise CheckpointFileError(
            str(folder), f"{file_name} is not valid JSON ({error})", _AGAIN
        ) from error
    if not isinstance(content, dict):
        raise CheckpointFileError(str(folder), f"{file_name} is not a JSON object", _AGAIN)
    return content
