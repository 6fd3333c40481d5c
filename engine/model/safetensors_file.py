"""The header of a safetensors file, checked in full before a library maps its bytes.

A file is 8 bytes of header size, the header, and the tensors one after the other without a gap.
Source: github.com/huggingface/safetensors, README.md, "Format".
"""

import json
from math import prod
from pathlib import Path
from typing import NamedTuple

from kvscope_events.printable import one_line

MAX_HEADER_BYTES = 100_000_000
"""Maximum bytes of the header, set by the format itself."""

_BITS = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8"), 8),
    **dict.fromkeys(("F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E5M2FNUZ", "F8_E4M3FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}
_FLOATING = tuple(name for name in _BITS if name.startswith(("F", "BF")))
_LFS_POINTER = b"version https://git-lfs"
_QUOTED = 80
"""Characters of a tensor's name or type in an error."""


class SafetensorsError(Exception):
    """Describes what is wrong with the file, to follow its name."""


class PointerError(SafetensorsError):
    """A file of Git LFS that stands for one still to be fetched."""


class StoredTensor(NamedTuple):
    """A tensor as the header describes it."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def floating(self) -> bool:
        return self.dtype in _FLOATING

    @property
    def bits(self) -> int:
        """Bits of one element."""
        return _BITS[self.dtype]


def read_header(path: Path) -> dict[str, StoredTensor]:
    """Every tensor of the file by name. Raises SafetensorsError or OSError; reads only the header.

    A header that is accepted describes all bytes of the file, each of them once.
    """
    size = path.stat().st_size
    if size == 0:
        raise SafetensorsError("is empty")
    with path.open("rb") as file:
        prefix = file.read(8)
        header_size = int.from_bytes(prefix, "little")
        if _LFS_POINTER.startswith(prefix):
            raise PointerError("is a Git LFS pointer, not weights")
        if len(prefix) < 8 or 8 + header_size > size:
            raise SafetensorsError("ends inside its header")
        if header_size > MAX_HEADER_BYTES:
            raise SafetensorsError(f"has a header of {header_size:,} bytes")
        header = _parsed(file.read(header_size))
    end = _check_layout(header)
    expected = 8 + header_size + end
    if size != expected:
        raise SafetensorsError(f"has {size:,} bytes, its header says {expected:,}")
    return {name: tensor for name, (tensor, _, _) in header.items()}


_Entry = tuple[StoredTensor, int, int]
"""A tensor, with the start and end of its bytes after the header."""


def _parsed(text: bytes) -> dict[str, _Entry]:
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError) as error:
        raise SafetensorsError("is not a safetensors file (bad header)") from error
    if not isinstance(header, dict):
        raise SafetensorsError("is not a safetensors file (bad header)")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise SafetensorsError("has metadata in its header that are no text")
    return {name: _entry(name, entry) for name, entry in header.items()}


def _without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a name occurs twice")
    return content


def _entry(name: str, entry: object) -> _Entry:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise SafetensorsError(
            f"does not say type, shape and place of {one_line(name, _QUOTED)} in its header"
        )
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise SafetensorsError(
            f"gives {one_line(name, _QUOTED)} an unknown type, {one_line(repr(dtype), _QUOTED)}"
        )
    if not _sizes(shape):
        raise SafetensorsError(f"has an invalid shape for {one_line(name, _QUOTED)}")
    if not _sizes(offsets) or len(offsets) != 2:
        raise SafetensorsError(f"has invalid offsets for {one_line(name, _QUOTED)}")
    tensor = StoredTensor(dtype, tuple(shape))
    begin, end = offsets
    if (end - begin) * 8 != tensor.elements * tensor.bits:
        raise SafetensorsError(
            f"gives {one_line(name, _QUOTED)} {end - begin:,} bytes, which do not hold "
            f"{one_line(str(shape), _QUOTED)} elements of {dtype}"
        )
    return tensor, begin, end


def _sizes(value: object) -> bool:
    """Whether it is a list of valid tensor dimensions."""
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 2**63 for n in value)


def _check_layout(header: dict[str, _Entry]) -> int:
    """The end of the last tensor. Raises SafetensorsError for a gap or an overlap."""
    reached = 0
    for name, (_, begin, end) in sorted(header.items(), key=lambda item: item[1][1:]):
        if begin != reached:
            how = "overlaps another tensor" if begin < reached else "leaves a gap before it"
            raise SafetensorsError(f"has a bad header: {one_line(name, _QUOTED)} {how}")
        reached = end
    return reached
