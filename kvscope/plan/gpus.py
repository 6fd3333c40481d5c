"""Memory of common GPUs as CUDA reports it: the total that `gpu_memory_utilization` refers to.

A datasheet's "GB" is neither: an H200 of "141 GB" has 143,771 MiB by nvidia-smi (150.8e9 bytes)
of which the driver keeps 614 MiB for itself, so cudaMemGetInfo and torch say 139.80 GiB. It varies
by some ten MiB between driver versions. Sources: NVIDIA's datasheets for the name's figure;
nvidia-smi's total less its reserved memory (H200, H100, L40S); else the "total capacity" of torch's
out-of-memory messages in public issue threads, the lowest common one; else nvidia-smi's total less
what related cards keep: 640 MiB, and 729 of the large Blackwells, as the B200.
"""

from difflib import get_close_matches
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


GPUS = (
    Gpu("A10", 24, 22_559, ("A10G",)),  # 22.03 GiB
    Gpu("A40", 48, 45_428),  # 46,068 - 640 MiB
    Gpu("A100-40GB", 40, 40_438, ("A100-SXM4-40GB", "A100-PCIE-40GB")),  # 39.49 GiB
    Gpu("A100-80GB", 80, 81_152, ("A100", "A100-SXM4-80GB", "A100 80GB PCIe")),  # 79.25 GiB
    Gpu("B200", 180, 182_630),  # 178.35 GiB
    Gpu("B300", 288, 274_311, ("B300 SXM6 AC",)),  # 275,040 - 729 MiB
    Gpu("GB200", 186, 188_742),  # 189,471 - 729 MiB
    Gpu("GB300", 288, 283_479),  # 284,208 - 729 MiB
    Gpu("GH200", 96, 97_231, ("GH200 480GB", "GH200 120GB")),  # 97,871 - 640 MiB
    Gpu("H20", 96, 97_231),  # 97,871 - 640 MiB
    Gpu("H100-80GB", 80, 81_080, ("H100", "H100 80GB HBM3", "H100 PCIe")),  # 81,559 - 479 MiB
    Gpu("H100-NVL", 94, 95_232),  # 93.00 GiB
    Gpu("H200", 141, 143_157, ("H200 NVL",)),  # 143,771 - 614 MiB
    Gpu("L4", 24, 22_559),  # 22.03 GiB
    Gpu("L20", 48, 45_428),  # 46,068 - 640 MiB
    Gpu("L40", 48, 45_459),  # as the L40S
    Gpu("L40S", 48, 45_459),  # 46,068 - 609 MiB
    Gpu("RTX-3090", 24, 24_248, ("GeForce RTX 3090",)),  # 23.68 GiB
    Gpu("RTX-4090", 24, 24_084, ("GeForce RTX 4090",)),  # 23.52 GiB
    Gpu("RTX-5090", 32, 32_113, ("GeForce RTX 5090",)),  # 31.36 GiB
    Gpu("RTX-6000-Ada", 48, 45_496, ("RTX 6000 Ada Generation",)),  # 44.43 GiB
    Gpu("RTX-A6000", 48, 48_671),  # 47.53 GiB
    Gpu(
        "RTX-PRO-6000",
        96,
        97_249,  # 94.97 GiB
        (
            "RTX PRO 6000 Blackwell",
            "RTX PRO 6000 Blackwell Server Edition",
            "RTX PRO 6000 Blackwell Workstation Edition",
            "RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        ),
    ),
    Gpu("T4", 16, 14_909, ("Tesla T4",)),  # 14.56 GiB
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
