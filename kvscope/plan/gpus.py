"""Memory of common GPUs as CUDA reports it, by name; gpus.toml has them, and their sources."""

import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

_MIB = 2**20


class Gpu(NamedTuple):
    """One whole card: no MIG slice, no other process."""

    name: str
    datasheet_gb: int
    cuda_mib: int
    also: tuple[str, ...] = ()
    """Its names in nvidia-smi, without `NVIDIA`, and shorter ones."""

    @property
    def dense_fp8(self) -> bool:
        """vLLM's sparse attention keeps a latent vector in plain fp8, as on no other GPUs."""
        return self.name.lstrip("G").startswith(("B200", "B300"))

    @property
    def total_bytes(self) -> int:
        return self.cuda_mib * _MIB


GPUS = tuple(
    Gpu(**{**row, "also": tuple(row.get("also", ()))})
    for row in tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["gpu"]
)


def find_gpu(name: str) -> Gpu:
    """A card by name, in any case, with spaces or hyphens: `h200`, `NVIDIA H100 80GB HBM3`.

    Raises ValueError, which lists the known names.
    """
    key = _key(name)
    by_key = {_key(each): known for known in GPUS for each in (known.name, *known.also)}
    if key in by_key:
        return by_key[key]
    near = get_close_matches(key, by_key, n=1, cutoff=0.7)  # or "MI300X" would be a B300
    hint = f"did you mean {by_key[near[0]].name}? " if near else ""
    known = ", ".join(each.name for each in GPUS)
    raise ValueError(f"no GPU {name!r} here: {hint}There are {known}; or give --gpu-memory")


def _key(name: str) -> str:
    words = name.upper().removeprefix("NVIDIA ").replace("-", " ").split()
    return "".join(words)
