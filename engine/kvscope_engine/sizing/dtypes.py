"""Element types of weights and KV, by their bits."""

from enum import StrEnum


class Dtype(StrEnum):
    """Element types that `kvscope plan` knows."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    INT8 = "int8"
    INT4 = "int4"
    MXFP4 = "mxfp4"
    NVFP4 = "nvfp4"

    @property
    def bits(self) -> int:
        return _BITS[self]

    @property
    def quantized(self) -> bool:
        """Fewer than 16 bits: then only the matrices of the layers are stored so."""
        return self.bits < 16

    def nbytes(self, elements: int) -> int:
        """Bytes of `elements`, rounded up."""
        return -(-elements * self.bits // 8)


_BITS = {
    Dtype.FP32: 32,
    Dtype.BF16: 16,
    Dtype.FP16: 16,
    Dtype.FP8: 8,
    Dtype.INT8: 8,
    Dtype.INT4: 4,
    Dtype.MXFP4: 4,
    Dtype.NVFP4: 4,
}
_ALIASES = {
    "float32": Dtype.FP32,
    "float": Dtype.FP32,
    "bfloat16": Dtype.BF16,
    "float16": Dtype.FP16,
    "half": Dtype.FP16,
    "fp8_e4m3": Dtype.FP8,
    "fp8_e5m2": Dtype.FP8,
}
"""torch's and vLLM's names."""


def parse_dtype(name: str) -> Dtype:
    """A type by our name, torch's or vLLM's. Raises ValueError, which lists the known ones."""
    if name in _ALIASES:
        return _ALIASES[name]
    try:
        return Dtype(name)
    except ValueError:
        known = ", ".join([*Dtype, *_ALIASES])
        raise ValueError(f"unknown dtype {name!r}: expected one of {known}") from None
