"""Every setting of the engine, checked once when it is built; vLLM's names where vLLM has one."""

from dataclasses import dataclass
from typing import Literal

SchedulingPolicy = Literal["fcfs", "priority"]

DEFAULT_MAX_NUM_SEQS = 64
DEFAULT_MAX_NUM_BATCHED_TOKENS = 2048
DEFAULT_GPU_MEMORY_UTILIZATION = 0.9
"""vLLM's, up to its 0.19."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Which weights, and how they are held."""

    model: str = "demo"
    """A folder with a Hugging Face checkpoint, a hub name, or `demo`: seeded, no download."""
    served_model_name: str | None = None
    """Name in the API and in the `model_name` label; None: `model` itself."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Of weights, activations and KV; auto: the checkpoint's own."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: CUDA where there is one."""
    seed: int = 0
    """Of the demo model's weights and of sampling without a seed of its own."""

    @property
    def name(self) -> str:
        return self.served_model_name or self.model


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """The block pool. Its size: blocks, or bytes, or (neither) what the device's rule leaves."""

    block_size: int = 16
    """Tokens per block."""
    num_gpu_blocks_override: int | None = None
    """Blocks in the pool; wins over bytes."""
    kv_cache_memory_bytes: int | None = None
    """Bytes for the pool."""
    gpu_memory_utilization: float = DEFAULT_GPU_MEMORY_UTILIZATION
    """Share of the device's total memory for weights, activations and pool together."""
    enable_prefix_caching: bool = True
    """Keep full blocks findable by content after their last reference went."""

    def __post_init__(self) -> None:
        _require_positive(self, "block_size", "num_gpu_blocks_override", "kv_cache_memory_bytes")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ValueError(
                f"gpu_memory_utilization must be in (0, 1], got {self.gpu_memory_utilization}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """What may run in one step."""

    max_model_len: int
    """Prompt and output tokens of one sequence."""
    max_num_seqs: int = DEFAULT_MAX_NUM_SEQS
    """Sequences running at once."""
    max_num_batched_tokens: int = DEFAULT_MAX_NUM_BATCHED_TOKENS
    """Tokens computed in one step."""
    enable_chunked_prefill: bool = True
    """Split a prompt over steps; off: it is computed whole, so a step must hold the longest."""
    policy: SchedulingPolicy = "fcfs"
    """fcfs, or `priority`: lower numbers first, then arrival."""
    max_num_queued_reqs: int = 1024
    """Requests waiting before new ones get 429."""

    def __post_init__(self) -> None:
        _require_positive(
            self, "max_model_len", "max_num_seqs", "max_num_batched_tokens", "max_num_queued_reqs"
        )
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least "
                f"max_num_seqs ({self.max_num_seqs}): every running sequence needs one token a step"
            )
        if not self.enable_chunked_prefill and self.max_num_batched_tokens < self.max_model_len:
            raise ValueError(
                f"without chunked prefill max_num_batched_tokens ({self.max_num_batched_tokens}) "
                f"must be at least max_model_len ({self.max_model_len}): a prompt is one step"
            )


def _require_positive(config: object, *fields: str) -> None:
    for field in fields:
        number = getattr(config, field)
        if number is not None and number <= 0:
            raise ValueError(f"{field} must be positive, got {number}")
