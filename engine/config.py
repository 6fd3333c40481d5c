"""Every setting of the engine, checked once when it is built; vLLM's names where vLLM has one."""

from dataclasses import dataclass, fields
from typing import Literal

from engine.one_line import one_line

SchedulingPolicy = Literal["fcfs", "priority"]
AttentionName = Literal["auto", "torch", "triton", "cpu"]
PreemptionPolicy = Literal["recompute", "swap", "auto"]

DEFAULT_MODEL = "demo"
MAX_NAME_CHARACTERS = 256
"""Of a model's name, which clients send with each call and every metric carries."""
DEFAULT_SEED = 0
DEFAULT_BLOCK_SIZE = 16
DEFAULT_GPU_MEMORY_UTILIZATION = 0.9
"""The default of vLLM up to 0.19."""
DEFAULT_ENABLE_PREFIX_CACHING = True
DEFAULT_MAX_NUM_SEQS = 64
DEFAULT_MAX_NUM_BATCHED_TOKENS = 2048
DEFAULT_ENABLE_CHUNKED_PREFILL = True
DEFAULT_POLICY: SchedulingPolicy = "fcfs"
DEFAULT_PRIORITY_AGING_SECONDS = 60.0
DEFAULT_PREEMPTION_MODE: PreemptionPolicy = "recompute"
DEFAULT_SWAP_SPACE_GIB = 4.0
"""The default of vLLM while it swapped; here only where something is swapped."""
DEFAULT_MAX_NUM_QUEUED_REQS = 1024
DEFAULT_STALL_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Which weights to serve, in which type and on which device."""

    model: str = DEFAULT_MODEL
    """A folder with a Hugging Face checkpoint, a hub name, or `demo`: seeded, no download."""
    served_model_name: str | None = None
    """Name in the API and in the `model_name` label; None: `model` itself."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type of weights and activations; auto: the checkpoint's own."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: CUDA where there is one."""
    attention_backend: AttentionName = "auto"
    """auto: Triton on CUDA, a C kernel on a CPU with a compiler, else plain torch."""
    enforce_eager: bool = False
    """Launch every kernel of every step from Python; off: decode steps are CUDA graphs."""
    seed: int = DEFAULT_SEED
    """Seed of the demo model's weights, and of sampling where a call brings none."""

    def __post_init__(self) -> None:
        name, remedy = self.name, ""
        if not self.served_model_name:
            remedy = ": set --served-model-name"
        if len(name) > MAX_NAME_CHARACTERS:
            raise ValueError(
                f"the model's name has {len(name)} characters, at most {MAX_NAME_CHARACTERS} can "
                f"be served{remedy}"
            )
        if not name.isprintable():
            raise ValueError(
                f"the model's name {one_line(name)} has characters that cannot be printed{remedy}"
            )

    @property
    def name(self) -> str:
        return self.served_model_name or self.model


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """The block pool. With neither blocks nor bytes its size follows from the device's memory."""

    block_size: int = DEFAULT_BLOCK_SIZE
    """Tokens per block."""
    num_gpu_blocks_override: int | None = None
    """Blocks in the pool; wins over bytes."""
    kv_cache_memory_bytes: int | None = None
    """Bytes for the pool."""
    gpu_memory_utilization: float = DEFAULT_GPU_MEMORY_UTILIZATION
    """Share of the device's total memory for weights, activations and pool together."""
    kv_cache_dtype: Literal["auto", "fp8"] = "auto"
    """Type of stored K and V; auto: the model's. fp8: e4m3, half the bytes of 16-bit models."""
    enable_prefix_caching: bool = DEFAULT_ENABLE_PREFIX_CACHING
    """Keep full blocks findable by content after their last reference has gone."""

    @property
    def size_option(self) -> str | None:
        """The option that configures the pool's size; None: it is not configured."""
        if self.num_gpu_blocks_override is not None:
            return "num_gpu_blocks_override"
        return None if self.kv_cache_memory_bytes is None else "kv_cache_memory_bytes"

    def __post_init__(self) -> None:
        _require_positive(self, "block_size", "num_gpu_blocks_override", "kv_cache_memory_bytes")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ValueError(
                f"gpu_memory_utilization must be in (0, 1], got {self.gpu_memory_utilization}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapConfig:
    """What becomes of the KV of a sequence that is preempted for want of blocks."""

    mode: PreemptionPolicy = DEFAULT_PREEMPTION_MODE
    """recompute: it is dropped; swap: it is copied to the host and back; auto: what costs less."""
    space_gib: float | None = None
    """Host memory for it; None: the default where the mode swaps."""

    def __post_init__(self) -> None:
        if self.space_gib is not None and self.space_gib < 0:
            raise ValueError(f"--swap-space must not be negative, got {self.space_gib:g}")
        if self.mode == "recompute" and self.space_gib:
            raise ValueError(
                f"--swap-space {self.space_gib:g} is of no use while preempted requests are "
                "recomputed: add --preemption-mode swap or auto"
            )
        if self.mode != "recompute" and self.space_gib == 0:
            raise ValueError(f"--preemption-mode {self.mode} needs --swap-space")

    @property
    def space_bytes(self) -> int:
        """0: nothing is swapped."""
        if self.mode == "recompute":
            return 0
        gib = DEFAULT_SWAP_SPACE_GIB if self.space_gib is None else self.space_gib
        return int(gib * 2**30)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingLimits:
    """What may run at once, whatever the model."""

    max_num_seqs: int = DEFAULT_MAX_NUM_SEQS
    """Sequences running at once."""
    enable_chunked_prefill: bool = DEFAULT_ENABLE_CHUNKED_PREFILL
    """Split a prompt over steps; off: it is computed whole, so a step must hold the longest."""
    policy: SchedulingPolicy = DEFAULT_POLICY
    """fcfs: in order of arrival; priority: lower numbers first, then arrival."""
    priority_aging_seconds: float = DEFAULT_PRIORITY_AGING_SECONDS
    """Waiting that makes up for one class of priority; 0: none does, and a low one may starve."""
    max_num_queued_reqs: int = DEFAULT_MAX_NUM_QUEUED_REQS
    """Calls that wait before new ones get 429."""
    max_client_requests: int | None = None
    """Calls that one client may have under way; None: no limit."""
    max_client_tokens: int | None = None
    """Tokens that the calls of one client may take together; None: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig(SchedulingLimits):
    """What may run in one step of a loaded model: every limit is a number."""

    max_model_len: int
    """Prompt and output tokens of one sequence."""
    max_num_batched_tokens: int = DEFAULT_MAX_NUM_BATCHED_TOKENS
    """Tokens computed in one step."""

    def __post_init__(self) -> None:
        _require_positive(
            self,
            "max_model_len",
            "max_num_seqs",
            "max_num_batched_tokens",
            "max_num_queued_reqs",
            "max_client_requests",
            "max_client_tokens",
        )
        if self.priority_aging_seconds < 0:
            raise ValueError(
                f"priority_aging_seconds must not be negative, got {self.priority_aging_seconds:g}"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig(SchedulingLimits):
    """All that the operator sets; the rest comes from the checkpoint."""

    model: ModelConfig
    cache: CacheConfig
    swap: SwapConfig = SwapConfig()
    max_model_len: int | None = None
    """Prompt and output tokens of one sequence; None: the checkpoint's limit."""
    max_num_batched_tokens: int | None = None
    """Tokens computed in one step; None: the default, more where the other settings need it."""
    stall_seconds: float = DEFAULT_STALL_SECONDS
    """Seconds without a step, while there is work, after which /health reports a stall."""

    def scheduler(self, model_limit: int) -> SchedulerConfig:
        """The limits for a checkpoint of `model_limit` positions. Raises ValueError."""
        length = self.max_model_len or model_limit
        if length > model_limit:
            raise ValueError(
                f"--max-model-len {length} is over the checkpoint's {model_limit} positions"
            )
        budget = self.max_num_batched_tokens
        if budget is None:
            budget = max(DEFAULT_MAX_NUM_BATCHED_TOKENS, self.max_num_seqs)
            if not self.enable_chunked_prefill:
                budget = max(budget, length)
        return SchedulerConfig(
            max_model_len=length,
            max_num_batched_tokens=budget,
            **{limit.name: getattr(self, limit.name) for limit in fields(SchedulingLimits)},
        )


def _require_positive(config: object, *names: str) -> None:
    for name in names:
        number = getattr(config, name)
        if number is not None and number <= 0:
            raise ValueError(f"{name} must be positive, got {number}")
