"""Every setting of the engine, checked once when it is built; vLLM's names where vLLM has one.

A field made by `option` is also a flag of `kvscope engine serve`, an environment variable and a row
of docs/reference/engine.md: nothing else has to be written for it.
"""

from dataclasses import dataclass, fields
from typing import ClassVar, Literal

from kvscope_engine.option import option
from kvscope_events.printable import one_line

SchedulingPolicy = Literal["fcfs", "priority"]
AttentionName = Literal["auto", "torch", "triton", "cpu"]
PreemptionPolicy = Literal["recompute", "swap", "auto"]

MAX_NAME_CHARACTERS = 256
"""Maximum length of a model's name, which clients send with each call and every metric carries."""
DEFAULT_GPU_MEMORY_UTILIZATION = 0.9
"""The default of vLLM up to 0.19."""
DEFAULT_MAX_NUM_BATCHED_TOKENS = 2048
DEFAULT_SWAP_SPACE_GIB = 4.0
"""The default of vLLM while it had swapping; applies here only if something is swapped."""
DEFAULT_STALL_SECONDS = 60.0


def _require_positive(config: object, *names: str) -> None:
    for name in names:
        number = getattr(config, name)
        if number is not None and number <= 0:
            raise ValueError(f"{name} must be positive, got {number}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The weights to serve, their type and device."""

    PANEL: ClassVar[str] = "Model"
    model: str = option(
        "demo",
        "Folder of a Hugging Face checkpoint (safetensors), a name on the hub, or 'demo': a small "
        "random model made on the spot.",
        "MODEL",
    )
    served_model_name: str | None = option(
        None, "Name in the API and in metrics. Default: that of --model.", "NAME", unset="--model"
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = option(
        "auto", "Type of weights and activations; auto: the checkpoint's own."
    )
    device: Literal["auto", "cpu", "cuda"] = option(
        "auto", "Device to run on; auto: CUDA where there is one."
    )
    attention_backend: AttentionName = option(
        "auto",
        "Attention by triton (CUDA), cpu (a C kernel) or torch; auto: the first that can run.",
        "BACKEND",
    )
    enforce_eager: bool = option(False, "Do not capture decode steps as CUDA graphs.")
    seed: int = option(
        0,
        "Seed for requests without one, and for the demo model's weights.",
        "INT",
        least=0,
        most=2**63 - 1,
    )

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

    PANEL: ClassVar[str] = "KV cache"
    block_size: int = option(16, "Tokens per block.", "TOKENS", least=1)
    num_gpu_blocks_override: int | None = option(
        None,
        "Blocks in the pool, also on a CPU. Wins over --kv-cache-memory-bytes.",
        "BLOCKS",
        least=1,
    )
    kv_cache_memory_bytes: int | None = option(
        None,
        "Bytes for the pool. Default on CUDA: measured; on a CPU: a quarter of the free memory, at "
        "most what --max-num-seqs sequences of full length need.",
        "BYTES",
        least=1,
    )
    gpu_memory_utilization: float = option(
        DEFAULT_GPU_MEMORY_UTILIZATION,
        "On CUDA: share of the device's total memory for weights, activations and pool.",
        "SHARE",
        least=0.01,
        most=1.0,
    )
    kv_cache_dtype: Literal["auto", "fp8"] = option(
        "auto",
        "Type of K and V in the pool; auto: the model's; fp8: e4m3, half the bytes of 16-bit "
        "models, and less exact.",
    )
    enable_prefix_caching: bool = option(
        True, "Keep the KV of finished prefixes for later requests."
    )

    @property
    def size_option(self) -> str | None:
        """The option that configures the pool's size; None: not configured."""
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
    """Handling of a preempted sequence's KV."""

    PANEL: ClassVar[str] = "KV cache"
    mode: PreemptionPolicy = option(
        "recompute",
        "How preempted KV is handled: recompute (drop it), swap (copy it to the host and back), "
        "auto (whichever is estimated to be faster).",
        flags=("--preemption-mode",),
    )
    space_gib: float | None = option(
        None,
        f"Host memory for swapped requests. Default: {DEFAULT_SWAP_SPACE_GIB:g}, or 0 with "
        "--preemption-mode recompute.",
        "GIB",
        flags=("--swap-space",),
        least=0.0,
        unset=f"{DEFAULT_SWAP_SPACE_GIB:g}, or 0",
    )

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
    """Limits on what runs at once, independent of the model."""

    max_num_seqs: int = option(64, "Sequences running at once.", "SEQUENCES", least=1)
    enable_chunked_prefill: bool = option(True, "Split long prompts over several steps.")
    """Off: a prompt is computed whole, so a step must hold the longest one."""
    policy: SchedulingPolicy = option(
        "fcfs",
        "fcfs: in order of arrival; priority: lower numbers first, then arrival.",
        flags=("--scheduling-policy",),
    )
    priority_aging_seconds: float = option(
        60.0,
        "With --scheduling-policy priority: seconds of waiting that raise a request by one "
        "priority class, so that none starves; 0 disables aging.",
        "SECONDS",
        flags=("--priority-aging",),
        least=0.0,
    )
    max_num_queued_reqs: int = option(
        1024,
        "Requests that may wait; further ones are answered with 429.",
        "REQUESTS",
        least=1,
    )
    max_client_requests: int | None = option(
        None,
        "Requests that one client, by key or address, may have in flight; further ones are "
        "answered with 429.",
        "REQUESTS",
        least=1,
        unset="no limit",
    )
    max_client_tokens: int | None = option(
        None,
        "Tokens, prompts and answers together, that the requests of one client may take.",
        "TOKENS",
        least=1,
        unset="no limit",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig(SchedulingLimits):
    """Limits of one step of a loaded model: every limit is a number."""

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
    """All settings of the operator; the rest comes from the checkpoint."""

    PANEL: ClassVar[str] = "Scheduling"
    model: ModelConfig = ModelConfig()
    cache: CacheConfig = CacheConfig()
    swap: SwapConfig = SwapConfig()
    max_model_len: int | None = option(
        None,
        "Prompt and output tokens of a sequence. Default: the model's limit.",
        "TOKENS",
        least=1,
        unset="the model's limit",
    )
    max_num_batched_tokens: int | None = option(
        None,
        f"Tokens computed in a step. Default: {DEFAULT_MAX_NUM_BATCHED_TOKENS}; without chunked "
        "prefill at least --max-model-len.",
        "TOKENS",
        least=1,
        unset=f"{DEFAULT_MAX_NUM_BATCHED_TOKENS}",
    )
    stall_seconds: float = option(
        DEFAULT_STALL_SECONDS,
        "Seconds without a finished step, while there is work, until /health answers 503.",
        "SECONDS",
        least=0.1,
    )

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
