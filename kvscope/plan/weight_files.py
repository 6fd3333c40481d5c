"""Weights as the files of a checkpoint have them: every tensor of its headers, or its index's sum.

Only headers are read. Tensors are divided among GPUs by their names, as vLLM divides the modules of
these names; what is in no decoder layer and neither embedding nor head is whole on every GPU.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import NamedTuple

from kvscope.plan.weights import Matrix, Part, Split, Weights
from kvscope_engine.json_file import JsonFileError, parse_json_object, read_json_object
from kvscope_engine.sizing.config_json import ConfigError
from kvscope_engine.sizing.units import MAX_BYTES, MAX_SIZE

_FLOATS = ("F32", "F16", "BF16")
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
_MAX_INDEX = 64 * 2**20
_MAX_HEADER = 100 * 2**20
_LENGTH_BYTES = 8
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.(.+)$")
_OTHER_PART = re.compile(
    r"(?:^|\.)(?:visual|vision\w*|audio\w*|image\w*|encoder|talker|code2wav)\."
)
_DRAFTER = re.compile(r"(?:^|\.)(?:mtp|nextn|eagle)\w*\.")
_EXPERT = re.compile(r"experts\.\d+\.")
_COLUMNS = re.compile(r"(?:o_proj|out_proj|down_proj|c_proj|wo|w2|dense_4h_to_h|wo_b)\b")
_WHOLE = re.compile(
    r"(?:\bgate|router|norm|_a_proj\w*|kv_a_proj_with_mqa|indexer|wq_a|wkv|compressor)\b"
)
_KEYS = re.compile(r"\b[kv]_proj\b")


class Tensor(NamedTuple):
    dtype: str
    """As safetensors has it: BF16, F8_E4M3, U8."""
    shape: tuple[int, ...]

    @property
    def bits(self) -> int:
        found = re.search(r"\d+", self.dtype)
        return 8 if found is None else int(found[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFiles:
    """The weight files of a checkpoint, by their headers or their index."""

    nbytes: int
    """Bytes of all tensors."""
    tensors: Mapping[str, Tensor]
    """Empty where there is only an index."""

    @property
    def plain(self) -> bool:
        """Headers are there, and every tensor is of floats that a server casts as it loads them."""
        return bool(self.tensors) and all(each.dtype in _FLOATS for each in self.tensors.values())


def read_weight_files(folder: Path) -> WeightFiles | None:
    """None: there are neither weight files nor an index of them. Raises ConfigError."""
    index, single = folder / INDEX, folder / SINGLE
    try:
        if single.is_file():
            return weight_files(_header(single))
        if not index.is_file():
            return None
        content = read_json_object(index, _MAX_INDEX)
        placed, stated = content.get("weight_map"), content.get("metadata")
        shards = (
            sorted({str(shard) for shard in placed.values()}) if isinstance(placed, dict) else []
        )
        files = [folder / Path(shard).name for shard in shards]
        if files and all(file.is_file() for file in files):
            found: dict[str, Tensor] = {}
            for file in files:
                found |= _header(file)
            return weight_files(found)
    except OSError as error:
        raise ConfigError(f"cannot read {error.filename}: {error.strerror}") from error
    except JsonFileError as error:
        raise ConfigError(f"{index} {error}") from error
    total = stated.get("total_size") if isinstance(stated, dict) else None
    if not isinstance(total, int) or not 0 < total <= MAX_BYTES:
        return None
    return WeightFiles(nbytes=total, tensors={})


def weight_files(tensors: Mapping[str, Tensor]) -> WeightFiles:
    nbytes = sum(-(-prod(each.shape) * each.bits // 8) for each in tensors.values())
    return WeightFiles(nbytes=nbytes, tensors=tensors)


def _header(file: Path) -> dict[str, Tensor]:
    """Every tensor that the file's header describes. Raises OSError or ConfigError."""
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(_LENGTH_BYTES), "little")
        text = opened.read(length) if length <= _MAX_HEADER else b""
    try:
        content = parse_json_object(text)
    except JsonFileError as error:
        raise ConfigError(f"{file}: its header {error}: download it again") from error
    content.pop("__metadata__", None)
    return {name: _tensor(value, f"{file}: {name}") for name, value in content.items()}


def _tensor(value: object, place: str) -> Tensor:
    described = value if isinstance(value, dict) else {}
    dtype, shape = described.get("dtype"), described.get("shape")
    sizes = (
        [size for size in shape if type(size) is int and size >= 0]
        if (isinstance(shape, list))
        else None
    )
    if not isinstance(dtype, str) or sizes is None or len(sizes) != len(described["shape"]):
        raise ConfigError(f"{place} has no dtype and shape in the header: download it again")
    if prod(sizes) > MAX_SIZE:
        raise ConfigError(f"{place} has {prod(sizes):,} elements, which no tensor has")
    return Tensor(dtype, tuple(sizes))


def stored_weights(
    files: WeightFiles, layers: int, kv_heads: int, float_bits: int
) -> tuple[Weights, int]:
    """The tensors as the parts of a decoder, and the bytes of a drafter that is left out.

    kv_heads: 0 where K and V are no matrices of heads. float_bits: bits of a float as it is served.
    """
    inside: list[Counter[Matrix]] = [Counter() for _ in range(layers)]
    embedding: Counter[Matrix] = Counter()
    head: Counter[Matrix] = Counter()
    drafter = 0
    for name, tensor in files.tensors.items():
        found = None if _OTHER_PART.search(name) else _LAYER.search(name)
        number = int(found[1]) if found else None
        if _DRAFTER.search(name) or (number is not None and number >= layers):
            drafter += -(-prod(tensor.shape) * tensor.bits // 8)
            continue
        matrix = _matrix(found[2] if found else name, tensor, kv_heads, found is not None)
        if tensor.dtype in _FLOATS and "scale" not in name:
            matrix = replace(matrix, bits=float_bits)
        part = embedding if number is None else inside[number]
        if number is None and re.search(r"(?:^|\.)(?:lm_head|output|norm|ln_f)\b", name):
            part = head
        part[matrix] += 1
    tied = not any("lm_head" in name or name == "output.weight" for name in files.tensors)
    return Weights(
        embedding=_part(embedding),
        layers=tuple(map(_part, inside)),
        head=_part(head),
        tied=tied,
        given=True,
    ), drafter


def _part(counted: Counter[Matrix]) -> Part:
    """Experts that are alike become one matrix with their number."""
    return Part(tuple(replace(each, experts=each.experts * n) for each, n in counted.items()))


def _matrix(name: str, tensor: Tensor, kv_heads: int, inside: bool) -> Matrix:
    shape, experts = tensor.shape, 0
    module = _EXPERT.sub("experts.", name)
    if module != name:
        experts = 1
    elif ".experts." in f".{name}" and len(shape) > 1:
        experts, shape = shape[0], shape[1:]
    rows, columns = (shape[0], prod(shape[1:])) if len(shape) > 1 else (1, prod(shape))
    split = Split.ROWS
    table = re.search(r"embed|wte|lm_head|output", name)
    if len(shape) < 2 or _WHOLE.search(name) or not (inside or table):
        split = Split.NONE
    elif _COLUMNS.search(name):
        split = Split.COLUMNS
    heads = kv_heads if kv_heads and _KEYS.search(name) and rows % kv_heads == 0 else 0
    return Matrix(
        module=module,
        rows=rows,
        columns=columns,
        split=split,
        experts=experts,
        kv_heads=heads if split is Split.ROWS else 0,
        linear=len(shape) > 1,
        bits=tensor.bits,
    )
