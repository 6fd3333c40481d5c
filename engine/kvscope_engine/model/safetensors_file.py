"""The tensors of a safetensors file, as the library that loads them describes them.

Opening one maps the file and checks that its header describes all of its bytes, each of them once.
"""

import re
from math import prod
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError, safe_open

from kvscope_engine.model.errors import first_line

_LFS_POINTER = b"version https://git-lfs"
_PREFIX = "Error while deserializing header: "
"""Begins the library's errors, and says less than what follows."""


class SafetensorsError(Exception):
    """A file that cannot be used; the message follows its name."""

    def __init__(self, problem: str, *, is_pointer: bool = False) -> None:
        super().__init__(problem)
        self.is_pointer = is_pointer
        """Whether it is a file of Git LFS that stands for one still to be fetched."""


class StoredTensor(NamedTuple):
    """A tensor as the header describes it."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def floating(self) -> bool:
        return self.dtype.startswith(("F", "BF"))

    @property
    def bits(self) -> int:
        """Bits of one element, which every name but BOOL begins with."""
        found = re.search(r"\d+", self.dtype)
        return 8 if found is None else int(found[0])


def read_header(path: Path) -> dict[str, StoredTensor]:
    """Every tensor of the file by name; reads only the header.

    Raises SafetensorsError or OSError.
    """
    size = path.stat().st_size
    if size == 0:
        raise SafetensorsError("is empty")
    with path.open("rb") as file:
        if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
            raise SafetensorsError("is a Git LFS pointer, not weights", is_pointer=True)
    try:
        with safe_open(path, "np") as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
            return {
                name: StoredTensor(slice.get_dtype(), tuple(slice.get_shape()))
                for name, slice in slices.items()
            }
    except SafetensorError as error:
        reason = first_line(error).removeprefix(_PREFIX)
        raise SafetensorsError(
            f"of {size:,} bytes is not a whole safetensors file ({reason})"
        ) from error
