"""The figures behind `kvscope plan`: calculated, not measured."""

from dataclasses import dataclass
from typing import Literal

from engine.config import DEFAULT_GPU_MEMORY_UTILIZATION
from engine.sizing.config_json import ConfigError
from engine.sizing.dtypes import Dtype
from engine.sizing.memory import cpu_pool_blocks, kv_budget, requested_bytes
from engine.sizing.units import MAX_SIZE, at_most
from kvscope.plan.shape import ModelShape

Prefill = Literal["chunked", "whole"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMemory:
    """The memory for the pool: at most one of the first three; without any, no pool is sized."""

    total: int | None = None
    """Bytes of a GPU; the pool follows from vLLM's rule."""
    pool: int | None = None
    """Bytes of the pool itself."""
    free_host: int | None = None
    """Bytes free on a machine without a GPU; the pool follows from the rule for CPUs."""
    utilization: float = DEFAULT_GPU_MEMORY_UTILIZATION
    other: int = 0
    """Bytes outside torch: CUDA context, libraries, graphs."""

    def __post_init__(self) -> None:
        if not 0 < self.utilization <= 1:  # also refuses NaN
            raise ValueError(f"--gpu-memory-utilization must be in (0, 1], got {self.utilization}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings with which the model would be served."""

    weight_dtype: Dtype
    kv_dtype: Dtype
    block_size: int
    max_model_len: int
    concurrency: int
    """Sequences at once."""
    max_num_batched_tokens: int
    """Tokens of a step with chunked prefill."""
    window_aware: bool = False
    """Sliding layers keep only what they can still see, as in vLLM's hybrid cache manager."""
    activations: int | None = None
    """Bytes of a step's peak, measured elsewhere; None: estimated."""

    def __post_init__(self) -> None:
        at_most(
            MAX_SIZE,
            block_size=self.block_size,
            max_model_len=self.max_model_len,
            concurrency=self.concurrency,
            max_num_batched_tokens=self.max_num_batched_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A GPU's memory divided; the parts add up to `total`."""

    prefill: Prefill
    total: int
    requested: int
    weights: int
    activations: int
    other: int
    kv_pool: int
    """Whole blocks; 0 where nothing is left."""
    missing: int
    """Bytes that the budget lacks even without a pool; 0: it suffices."""

    @property
    def outside(self) -> int:
        """Bytes outside the budget: for other processes, or less than a block, minus `missing`."""
        used = self.weights + self.activations + self.other + self.kv_pool
        return self.total - used


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Raises ConfigError for a model without a KV cache."""

    shape: ModelShape
    settings: Settings
    memory: PoolMemory

    def __post_init__(self) -> None:
        if not self.bytes_per_token:
            raise ConfigError("no layer of this model keeps K and V: there is nothing to page")

    @property
    def bytes_per_token(self) -> int:
        """K and V of all layers, whatever their window."""
        elements = sum(layer.elements for layer in self.shape.layers)
        return self.settings.kv_dtype.nbytes(elements)

    @property
    def bytes_per_block(self) -> int:
        elements = sum(layer.elements for layer in self.shape.layers)
        return self.settings.kv_dtype.nbytes(elements * self.settings.block_size)

    @property
    def state_bytes(self) -> int:
        """Bytes of one sequence in layers that keep a state instead of KV."""
        dtype = self.settings.weight_dtype
        return sum(layer.state_bytes(dtype) for layer in self.shape.layers)

    @property
    def weight_bytes(self) -> int | None:
        """Bytes of the weights; None if their number is not known."""
        parameters = self.shape.parameters
        return None if parameters is None else parameters.nbytes(self.settings.weight_dtype)

    def blocks(self, tokens: int) -> int:
        return -(-tokens // self.settings.block_size)

    def sequence_bytes(self, tokens: int) -> int:
        """Blocks of one sequence, all layers, and its states."""
        if not self.settings.window_aware:
            return self.blocks(tokens) * self.bytes_per_block + self.state_bytes
        elements = sum(
            layer.elements
            * self.blocks(tokens if layer.window is None else self._kept(tokens, layer.window))
            for layer in self.shape.layers
        )
        held = self.settings.kv_dtype.nbytes(elements * self.settings.block_size)
        return held + self.state_bytes

    def activation_bytes(self, prefill: Prefill) -> int | None:
        """Bytes of a step's peak; None if widths are unknown and no measurement is given."""
        settings, widths = self.settings, self.shape.widths
        if settings.activations is not None:
            return settings.activations
        if widths is None:
            return None
        tokens = settings.max_num_batched_tokens
        if prefill == "whole":
            tokens = max(tokens, settings.max_model_len)
        return widths.activation_bytes(
            tokens, min(settings.concurrency, tokens), settings.weight_dtype
        )

    def budget(self, prefill: Prefill) -> Budget | None:
        """The GPU's memory, divided by vLLM's rule; None without a GPU or the number of weights."""
        memory, weights = self.memory, self.weight_bytes
        if memory.total is None or weights is None:
            return None
        activations = self.activation_bytes(prefill) or 0
        requested = requested_bytes(memory.total, memory.utilization)
        left = kv_budget(requested, weights, activations, memory.other)
        return Budget(
            prefill=prefill,
            total=memory.total,
            requested=requested,
            weights=weights,
            activations=activations,
            other=memory.other,
            kv_pool=max(0, left) // self.bytes_per_block * self.bytes_per_block,
            missing=max(0, -left),
        )

    def pool_bytes(self, prefill: Prefill = "chunked") -> int | None:
        """Bytes of the pool's whole blocks; None if no memory is given."""
        if self.memory.pool is not None:
            return self.memory.pool // self.bytes_per_block * self.bytes_per_block
        if self.memory.free_host is not None:
            useful = self.settings.concurrency * self.blocks(self.settings.max_model_len)
            blocks = cpu_pool_blocks(self.memory.free_host, self.bytes_per_block, useful)
            return blocks * self.bytes_per_block
        budget = self.budget(prefill)
        return None if budget is None else budget.kv_pool

    def sequences(self, tokens: int, prefill: Prefill = "chunked") -> int | None:
        """Sequences of this length that fit at once; None if no memory is given."""
        pool = self.pool_bytes(prefill)
        return None if pool is None else pool // self.sequence_bytes(tokens)

    def _kept(self, tokens: int, window: int) -> int:
        """Tokens that a sliding layer keeps: the window before a chunk, the chunk, a block to
        align.

        Source: vLLM's SlidingWindowSpec.max_memory_usage_bytes.
        """
        chunk = self.settings.max_num_batched_tokens
        return min(tokens, window - 1 + chunk + self.settings.block_size)
