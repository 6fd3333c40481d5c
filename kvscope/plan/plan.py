"""The figures behind `kvscope plan`: calculated, not measured."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil
from typing import Literal

from kvscope.plan.adapters import Adapters
from kvscope.plan.groups import Group, PoolRules, groups_of
from kvscope.plan.parallel import Parallelism, check_context, check_heads
from kvscope.plan.shape import ModelShape
from kvscope.plan.speculation import Speculation
from kvscope.plan.storage import Storage
from kvscope_engine.config import DEFAULT_GPU_MEMORY_UTILIZATION
from kvscope_engine.sizing.config_json import ConfigError
from kvscope_engine.sizing.dtypes import Dtype
from kvscope_engine.sizing.memory import cpu_pool_blocks, kv_budget, requested_bytes
from kvscope_engine.sizing.units import MAX_SIZE, at_most

Prefill = Literal["chunked", "whole"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMemory:
    """The memory of each GPU: at most one of the first three; without any, no pool is sized."""

    total: int | None = None
    """Bytes of a GPU; the pool follows from vLLM's rule."""
    pool: int | None = None
    """Bytes of the pool itself, on each GPU."""
    free_host: int | None = None
    """Bytes free on a machine without a GPU; the pool follows from the rule for CPUs."""
    utilization: float = DEFAULT_GPU_MEMORY_UTILIZATION
    other: int = 0
    """Bytes outside torch: CUDA context, libraries, graphs."""
    tier: int = 0
    """Bytes of host memory below the pool of each replica; 0: there is no such tier."""

    def __post_init__(self) -> None:
        if not 0 < self.utilization <= 1:  # also refuses NaN
            raise ValueError(f"--gpu-memory-utilization must be in (0, 1], got {self.utilization}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings with which the model would be served."""

    storage: Storage
    """Types of the weights."""
    kv_dtype: Dtype
    state_dtype: Dtype | None = None
    """Type of recurrences; None: the weights'."""
    block_size: int
    max_model_len: int
    concurrency: int
    """Sequences at once."""
    max_num_batched_tokens: int
    """Tokens of a step with chunked prefill."""
    parallel: Parallelism = field(default_factory=Parallelism)
    packed_fp8: bool = True
    """Sparse attention packs latent vectors in fp8 with their scales, as on all GPUs but B200s."""
    windows: bool = True
    """Layers that see a window keep the window, as in vLLM's hybrid cache manager."""
    prefix_caching: bool = True
    speculation: Speculation = field(default_factory=Speculation)
    adapters: Adapters = field(default_factory=Adapters)
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
    """The memory of one GPU divided, of the one with the least room; the parts are `total`."""

    prefill: Prefill
    total: int
    requested: int
    weights: int
    """With those of a draft model."""
    adapters: int
    activations: int
    other: int
    kv_pool: int
    """Whole blocks; 0 where nothing is left."""
    missing: int
    """Bytes that the budget lacks even without a pool; 0: it suffices."""

    @property
    def outside(self) -> int:
        """Bytes outside the budget: left to others, or less than a block; `missing` comes off."""
        used = self.weights + self.adapters + self.activations + self.other + self.kv_pool
        return self.total - used


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Raises ConfigError for a model of which nothing is kept, or that cannot be divided so."""

    shape: ModelShape
    settings: Settings
    memory: PoolMemory

    def __post_init__(self) -> None:
        if not self.shape.layers:
            raise ConfigError("no layer of this model keeps anything: there is nothing to page")
        if self.shape.heads is not None:
            latent = any(layer.kind == "latent" for layer in self.shape.layers)
            heads, kv_heads = self.shape.heads
            check_heads(self.settings.parallel.tensor, heads, heads if latent else kv_heads)
            windows = any(page.window for page in (group.page for group in self.groups))
            check_context(self.settings.parallel, 1 if latent else kv_heads, windows)
        if not self.bytes_per_block:
            raise ConfigError("the layers of this model keep nothing: there is nothing to page")

    @cached_property
    def rules(self) -> PoolRules:
        settings, rest = self.settings, self.settings.storage.rest
        return PoolRules(
            block_size=settings.block_size,
            kv_dtype=settings.kv_dtype,
            conv_dtype=rest,
            state_dtype=settings.state_dtype or rest,
            tensor=settings.parallel.tensor,
            context=settings.parallel.context,
            # vLLM schedules ahead: one batch for each stage, and one more.
            in_flight=(settings.parallel.pipeline + 1) * settings.max_num_batched_tokens,
            drafts=settings.speculation.tokens,
            prefix_caching=settings.prefix_caching and not self.shape.attention_free,
            windows=settings.windows,
            encoder=settings.max_num_batched_tokens,
            packed_fp8=settings.packed_fp8,
        )

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        draft = self.settings.speculation.layers(self.shape.num_layers - 1)
        return groups_of((*self.shape.layers, *draft), self.rules)

    @cached_property
    def stages(self) -> list[range]:
        return self.settings.parallel.stages(self.shape.num_layers)

    @cached_property
    def stage_blocks(self) -> list[int]:
        """Bytes of a block on one GPU of each stage."""
        return [max(group.nbytes(stage) for group in self.groups) for stage in self.stages]

    @property
    def bytes_per_block(self) -> int:
        """Bytes of a block on the GPU that has most of it."""
        return max(self.stage_blocks)

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one more token of a long sequence on one GPU."""
        growing = [
            group.page.block_size * self.settings.parallel.context
            for group in self.groups
            if group.page.kind != "state" and group.page.window is None
        ]
        return ceil(sum(self.bytes_per_block / size for size in growing))

    @property
    def state_bytes(self) -> int:
        """Bytes of one sequence's states on one GPU, without what fills up their blocks."""
        rules = self.rules
        return sum(
            layer.state.nbytes(rules.conv_dtype, rules.state_dtype, rules.tensor, rules.drafts)
            for layer in self.shape.layers
            if layer.state is not None and layer.layer in self.stages[0]
        )

    @cached_property
    def weight_bytes(self) -> int | None:
        """Bytes of the whole checkpoint; None if the number of weights is not known."""
        weights = self.shape.weights
        if self.shape.stored_bytes is not None:
            return self.shape.stored_bytes
        return None if weights is None else self.settings.storage.nbytes(weights)

    @cached_property
    def stage_weights(self) -> list[int] | None:
        """Bytes of weights on one GPU of each stage, a draft model's with the last."""
        settings, storage = self.settings, self.settings.storage
        if self.shape.weights is None:
            return None
        sizes = self.shape.weights.on_gpus(
            storage.matrix_bytes, storage.rest.nbytes, settings.parallel
        )
        if self.shape.stored_bytes is not None:
            counted = storage.nbytes(self.shape.weights)
            sizes = [size * self.shape.stored_bytes // counted for size in sizes]
        sizes[-1] += settings.speculation.weight_bytes(settings.parallel.tensor, storage)
        return sizes

    def blocks(self, tokens: int) -> int:
        """Blocks of one sequence, of all groups, as vLLM reserves them."""
        return sum(group.page.blocks(tokens, self.rules) for group in self.groups)

    def sequence_bytes(self, tokens: int) -> int:
        """The blocks of one sequence on one GPU."""
        return self.blocks(tokens) * self.bytes_per_block

    def activation_bytes(self, prefill: Prefill) -> int | None:
        """None if the model's widths are unknown and no measurement is given."""
        settings, widths = self.settings, self.shape.widths
        if settings.activations is not None:
            return settings.activations
        if widths is None:
            return None
        tokens = settings.max_num_batched_tokens
        if prefill == "whole":
            tokens = max(tokens, settings.max_model_len)
        sampled = min(settings.concurrency, tokens)
        return widths.activation_bytes(
            tokens, sampled, settings.storage.rest, settings.parallel.tensor
        )

    def budget(self, prefill: Prefill) -> Budget | None:
        """A GPU's memory divided by vLLM's rule; None without a GPU or the number of weights."""
        if self.memory.total is None or self.stage_weights is None:
            return None
        budgets = [
            self._budget(prefill, self.memory.total, weights, block)
            for weights, block in zip(self.stage_weights, self.stage_blocks, strict=True)
        ]
        return min(
            budgets,
            key=lambda each: (each.kv_pool, -each.missing),
        )

    def _budget(self, prefill: Prefill, total: int, weights: int, block: int) -> Budget:
        memory, settings = self.memory, self.settings
        activations = self.activation_bytes(prefill) or 0
        assert self.shape.weights is not None
        adapters = settings.adapters.nbytes(
            self.shape.counted or self.shape.weights, settings.parallel, settings.storage.rest
        )
        requested = requested_bytes(total, memory.utilization)
        left = kv_budget(requested, weights + adapters, activations, memory.other)
        return Budget(
            prefill=prefill,
            total=total,
            requested=requested,
            weights=weights,
            adapters=adapters,
            activations=activations,
            other=memory.other,
            kv_pool=max(0, left) // block * block if block else max(0, left),
            missing=max(0, -left),
        )

    def num_blocks(self, prefill: Prefill = "chunked") -> int | None:
        """Blocks of a replica's pool, as many as the stage with the least room has.

        None if no memory is given.
        """
        memory = self.memory
        if memory.pool is not None:
            return memory.pool // self.bytes_per_block
        if memory.free_host is not None:
            useful = self.settings.concurrency * self.blocks(self.settings.max_model_len)
            return cpu_pool_blocks(memory.free_host, self.bytes_per_block, useful)
        if memory.total is None or self.stage_weights is None:
            return None
        return min(
            self._budget(prefill, memory.total, weights, block).kv_pool // block
            for weights, block in zip(self.stage_weights, self.stage_blocks, strict=True)
            if block
        )

    def pool_bytes(self, prefill: Prefill = "chunked") -> int | None:
        """Bytes of the pool's whole blocks on one GPU; None if no memory is given."""
        blocks = self.num_blocks(prefill)
        return None if blocks is None else blocks * self.bytes_per_block

    def concurrent(self, tokens: int, prefill: Prefill = "chunked") -> float | None:
        """Sequences of this length in the pools of all replicas, as vLLM's log line says it."""
        blocks = self.num_blocks(prefill)
        if blocks is None:
            return None
        return self.settings.parallel.data * blocks / self.blocks(tokens)

    def sequences(self, tokens: int, prefill: Prefill = "chunked") -> int | None:
        """Whole sequences of this length that fit at once; None if no memory is given."""
        blocks = self.num_blocks(prefill)
        if blocks is None:
            return None
        return self.settings.parallel.data * (blocks // self.blocks(tokens))

    @property
    def tier_sequences(self) -> float:
        """Sequences of full length that the tier below the pool holds, of each replica."""
        whole = self.settings.parallel.tensor * sum(self.stage_blocks)
        return self.memory.tier // whole / self.blocks(self.settings.max_model_len)

    def divided(self, parallel: Parallelism) -> "Plan":
        """The same model on other GPUs. Raises ConfigError if it cannot be divided so."""
        return replace(self, settings=replace(self.settings, parallel=parallel))
