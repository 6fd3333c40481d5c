"""Bytes of a checkpoint's weights, quantized matrices apart from the rest."""

from dataclasses import dataclass, field

from kvscope.plan.modules import Modules
from kvscope.plan.weights import Matrix, Weights
from kvscope_engine.sizing.dtypes import Dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """Bits of a quantized matrix and of the scales that belong to it."""

    bits: int
    group_rows: int = 1
    """Rows that share a scale; 0: all of them."""
    group_columns: int = 0
    """Columns that share a scale; 0: all of them."""
    scale_bits: int = 16
    zero_bits: int = 0
    """Bits of the zero point of a group."""
    column_bits: int = 0
    """Beside each column: GPTQ's index of groups."""
    matrix_bits: int = 0
    """Beside each matrix: NVFP4's second scale."""

    def nbytes(self, matrix: Matrix) -> int:
        rows = -(-matrix.rows // self.group_rows) if self.group_rows else 1
        columns = -(-matrix.columns // self.group_columns) if self.group_columns else 1
        bits = (
            matrix.rows * matrix.columns * self.bits
            + rows * columns * (self.scale_bits + self.zero_bits)
            + matrix.columns * self.column_bits
            + self.matrix_bits
        )
        return -(-bits // 8) * matrix.count


BLOCK = 128
INT4_GROUP = 128
"""Weights that share a 16-bit scale and a 4-bit zero point in GPTQ and AWQ checkpoints."""

PLAIN_FORMATS = {
    Dtype.FP8: Format(bits=8, group_rows=0, scale_bits=0),
    Dtype.INT8: Format(bits=8, group_rows=0, scale_bits=0),
    Dtype.INT4: Format(bits=4, group_columns=INT4_GROUP, zero_bits=4),
    Dtype.MXFP4: Format(bits=4, group_columns=32, scale_bits=8),
    Dtype.NVFP4: Format(bits=4, group_columns=16, scale_bits=8, matrix_bits=32),
}
"""The meaning of --dtype below 16 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The types of all weights of a checkpoint."""

    rest: Dtype
    """Type of weights that are not quantized, and of the computation."""
    method: str = ""
    """Name of the quantization; empty: none."""
    quantized: Format | None = None
    only_experts: bool = False
    skipped: Modules = field(default_factory=Modules)
    """Modules that are not quantized."""
    mixed: tuple[tuple[Modules, Format], ...] = ()
    """Modules that are quantized in a way of their own, the first that names one; if there are
    any, `quantized` is None."""

    @property
    def text(self) -> str:
        return f"{self.method}, the rest {self.rest}" if self.method else str(self.rest)

    def matrix_bytes(self, matrix: Matrix, layer: int | None) -> int:
        if matrix.bits:
            return -(-matrix.elements * matrix.bits // 8)
        skipped = not matrix.linear or (self.only_experts and not matrix.experts)
        if skipped or self.skipped.have(matrix.module, layer):
            return self.rest.nbytes(matrix.elements)
        for modules, stored in self.mixed:
            if modules.have(matrix.module, layer):
                return stored.nbytes(matrix)
        return (
            self.quantized.nbytes(matrix) if self.quantized else self.rest.nbytes(matrix.elements)
        )

    def nbytes(self, weights: Weights) -> int:
        """Bytes of a checkpoint."""
        return weights.nbytes(self.matrix_bytes, self.rest.nbytes)


def plain_storage(dtype: Dtype) -> Storage:
    """All weights in one type; below 16 bits all but the layers' matrices stay in bf16."""
    if not dtype.quantized:
        return Storage(rest=dtype)
    return Storage(rest=Dtype.BF16, method=str(dtype), quantized=PLAIN_FORMATS[dtype])
