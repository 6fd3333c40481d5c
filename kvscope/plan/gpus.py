"""Memory of common GPUs as CUDA reports it: the total that `gpu_memory_utilization` refers to.

A datasheet's "GB" is neither: an H200 of "141 GB" has 143,771 MiB by nvidia-smi (150.8e9 bytes) of
which the driver keeps 614 MiB for itself, so cudaMemGetInfo and torch say 139.80 GiB. It varies by
some ten MiB between driver versions. Sources: NVIDIA's datasheets for the figure in the name;
nvidia-smi's total less its reserved memory (H200, H100, L40S); otherwise the "total capacity" in
torch's out-of-memory messages in public issue threads, the lowest common one.
"""

from difflib import get_close_matches
from typing import NamedTuple

_MIB = 2**20


class Gpu(NamedTuple):
    """One whole card: no MIG slice, no other process."""

    name: str
    datasheet_gb: int
    cuda_mib: int

    @property
    def total_bytes(self) -> int:
        return self.cuda_mib * _MIB


GPUS = (
    Gpu("A10", 24, 22_559),  # 22.03 GiB
    Gpu("A100-40GB", 40, 40_438),  # 39.49 GiB
    Gpu("A100-80GB", 80, 81_152),  # 79.25 GiB
    Gpu("B200", 180, 182_630),  # 178.35 GiB
    Gpu("H100-80GB", 80, 81_080),  # 81,559 - 479 MiB
    Gpu("H200", 141, 143_157),  # 143,771 - 614 MiB
    Gpu("L4", 24, 22_559),  # 22.03 GiB
    Gpu("L40S", 48, 45_459),  # 46,068 - 609 MiB
    Gpu("RTX-4090", 24, 24_084),  # 23.52 GiB
    Gpu("RTX-5090", 32, 32_113),  # 31.36 GiB
    Gpu("RTX-A6000", 48, 48_671),  # 47.53 GiB
    Gpu("T4", 16, 14_909),  # 14.56 GiB
)

_ALIASES = {"A100": "A100-80GB", "H100": "H100-80GB", "A10G": "A10"}


def find_gpu(name: str) -> Gpu:
    """A card by name, in any case, with spaces or hyphens: `h200`, `RTX 4090`, `NVIDIA H100 80GB`.

    Raises ValueError, which lists the known names.
    """
    key = _key(name)
    by_key = {_key(known.name): known for known in GPUS}
    by_key |= {alias: by_key[_key(known)] for alias, known in _ALIASES.items()}
    if key in by_key:
        return by_key[key]
    near = get_close_matches(key, by_key, n=1)
    hint = f"did you mean {by_key[near[0]].name}? " if near else ""
    known = ", ".join(each.name for each in GPUS)
    raise ValueError(f"no GPU {name!r} here: {hint}There are {known}; or give --gpu-memory")


def _key(name: str) -> str:
    words = name.upper().removeprefix("NVIDIA ").replace("-", " ").split()
    return "".join(words)
