"""A model's weights as matrices and vectors: how many, and which GPU has what of them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from kvscope.plan.parallel import Parallelism


class Split(Enum):
    """The side of a matrix that tensor parallelism divides."""

    ROWS = "rows"
    COLUMNS = "columns"
    NONE = "none"
    """Every GPU has the whole matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """One projection, or the same one of every expert."""

    module: str
    """Its place within the layer, as checkpoints name it: `self_attn.q_proj`."""
    rows: int
    """Outputs."""
    columns: int
    """Inputs."""
    split: Split = Split.ROWS
    experts: int = 0
    """Number of matrices, one for each expert; 0: it belongs to no expert."""
    used: int = 0
    """Experts that a token passes."""
    kv_heads: int = 0
    """KV heads that the rows are, of which every GPU has at least one."""
    linear: bool = True
    """Quantized checkpoints store it in fewer bits."""
    bits: int = 0
    """Bits of an element as a weight file has it; 0: by the types of the checkpoint."""

    @property
    def count(self) -> int:
        return self.experts or 1

    @property
    def elements(self) -> int:
        return self.rows * self.columns * self.count

    @property
    def idle(self) -> int:
        """Weights that a token does not pass."""
        return self.rows * self.columns * (self.experts - self.used)

    def on_gpu(self, parallel: Parallelism) -> "Matrix":
        """The part of one GPU, the largest where they differ."""
        shards = parallel.tensor
        if self.experts:
            shards = parallel.expert_shards
            if parallel.experts:
                return replace(self, experts=-(-self.experts // shards), used=0)
        if self.kv_heads:
            heads = max(1, self.kv_heads // shards)
            return replace(self, rows=self.rows // self.kv_heads * heads)
        if self.split is Split.ROWS:
            return replace(self, rows=-(-self.rows // shards))
        if self.split is Split.COLUMNS:
            return replace(self, columns=-(-self.columns // shards))
        return self


@dataclass(frozen=True, slots=True)
class Part:
    """A layer, or what stands before or behind them all."""

    matrices: tuple[Matrix, ...] = ()
    vectors: int = 0
    """Elements of norms, biases and other small things, which every GPU has."""


Bytes = Callable[[Matrix, int | None], int]
"""Bytes of a matrix in the layer of this number; None: it is in no layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """All weights of a text decoder."""

    embedding: Part
    layers: tuple[Part, ...]
    head: Part
    """The last norm, and the output matrix where it has one of its own."""
    tied: bool = False
    """The output uses the embedding's matrix."""
    given: bool = field(default=False)
    """Only their number is known; experts, norms and embeddings are not distinguished."""

    @property
    def total(self) -> int:
        return sum(
            part.vectors + sum(matrix.elements for matrix in part.matrices) for _, part in self
        )

    @property
    def active(self) -> int:
        """Weights that one token passes."""
        return self.total - sum(matrix.idle for _, part in self for matrix in part.matrices)

    def __iter__(self) -> Iterator[tuple[int | None, Part]]:
        """Every part with the number of its layer."""
        yield None, self.embedding
        yield from enumerate(self.layers)
        yield None, self.head

    def nbytes(self, of_matrix: Bytes, of_vectors: Callable[[int], int]) -> int:
        """Bytes of all weights, undivided."""
        return _nbytes(self, of_matrix, of_vectors)

    def on_gpus(
        self, of_matrix: Bytes, of_vectors: Callable[[int], int], parallel: Parallelism
    ) -> list[int]:
        """Bytes on one GPU of each pipeline stage."""
        stages = parallel.stages(len(self.layers))

        def share(matrix: Matrix, layer: int | None) -> int:
            return of_matrix(matrix.on_gpu(parallel), layer)

        sizes = []
        for number, stage in enumerate(stages):
            parts: list[tuple[int | None, Part]] = [(layer, self.layers[layer]) for layer in stage]
            last = number == len(stages) - 1
            if number == 0 or (last and self.tied):
                parts.append((None, self.embedding))
            if last:
                parts.append((None, self.head))
            sizes.append(_nbytes(parts, share, of_vectors))
        return sizes


def bulk(number: int, layers: int, bits: int = 0) -> Weights:
    """A number of weights, of which nothing else is known. bits: of each, as the files have it."""
    each, rest = divmod(number, layers)

    def part(columns: int) -> Part:
        matrix = Matrix(module="", rows=1, columns=columns, split=Split.COLUMNS, bits=bits)
        return Part((matrix,) if columns else ())

    return Weights(embedding=part(rest), layers=(part(each),) * layers, head=Part(), given=True)


def _nbytes(
    parts: Iterable[tuple[int | None, Part]],
    of_matrix: Bytes,
    of_vectors: Callable[[int], int],
) -> int:
    total = 0
    for layer, part in parts:
        total += of_vectors(part.vectors)
        total += sum(of_matrix(matrix, layer) for matrix in part.matrices)
    return total
