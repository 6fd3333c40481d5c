"""Memory that vLLM reserves for LoRA adapters: two narrow matrices beside every projection."""

from dataclasses import dataclass

from kvscope.plan.parallel import Parallelism
from kvscope.plan.weights import Matrix, Split, Weights
from kvscope_engine.sizing.dtypes import Dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """vLLM's --max-loras and --max-lora-rank."""

    slots: int = 0
    """Adapters in one batch; 0: LoRA is off."""
    rank: int = 16

    def nbytes(self, weights: Weights, parallel: Parallelism, dtype: Dtype) -> int:
        """Bytes on one GPU, the one with the most layers.

        Of the two matrices the one on the divided side is divided as well, as vLLM does without
        --fully-sharded-loras.
        """
        if not self.slots:
            return 0
        stages = parallel.stages(len(weights.layers))
        most = max(
            sum(
                self._sides(matrix, parallel)
                for layer in stage
                for matrix in weights.layers[layer].matrices
                if matrix.linear
            )
            for stage in stages
        )
        return self.slots * self.rank * dtype.nbytes(most)

    def _sides(self, matrix: Matrix, parallel: Parallelism) -> int:
        part = matrix.on_gpu(parallel)
        columns = matrix.columns if matrix.split is Split.ROWS else part.columns
        rows = matrix.rows if matrix.split is Split.COLUMNS else part.rows
        return (rows + columns) * part.count
