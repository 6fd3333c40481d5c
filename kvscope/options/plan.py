"""Options of `kvscope plan`."""

from dataclasses import dataclass
from pathlib import Path

from engine.config import DEFAULT_MAX_NUM_BATCHED_TOKENS, EngineConfig
from engine.option import option

_ENGINE = EngineConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Options as given on the command line; amounts of memory are still text."""

    model: str | None = option(
        None, "Folder of a checkpoint, its config.json, or a name on the Hugging Face hub.", "MODEL"
    )
    layers: int | None = option(
        None, "Number of layers. Default: the checkpoint's.", "INT", least=1
    )
    kv_heads: int | None = option(
        None, "K and V heads per layer. Default: the checkpoint's.", "INT", least=1
    )
    head_dim: int | None = option(
        None, "Elements per head. Default: the checkpoint's.", "INT", least=1
    )
    params: float | None = option(
        None,
        "Number of weights, such as 8030261248 or 8.03e9. Default: the checkpoint's.",
        "FLOAT",
        least=1,
    )
    dtype: str = option(
        "auto",
        "Type of the weights: fp32, bf16, fp16, fp8, int8, int4, or auto: as stored, bf16 where "
        "that is unknown.",
        "DTYPE",
    )
    kv_cache_dtype: str = option(
        "auto",
        "Type of K and V, as above; auto: that of the weights, bf16 if those are quantized.",
        "DTYPE",
        flags=("--kv-cache-dtype", "--kv-dtype"),
    )
    gpu: str | None = option(None, "Name of a GPU: H200, A100-80GB, L40S ...", "NAME")
    gpu_memory: str | None = option(
        None, "Memory of the GPU, instead of --gpu: 141GB, 139.8GiB.", "BYTES"
    )
    gpu_memory_utilization: float = option(
        _ENGINE.cache.gpu_memory_utilization,
        "Share of the total memory to use, as in vLLM.",
        "SHARE",
        least=0.01,
        most=1.0,
    )
    other_memory: str = option(
        "512MiB", "Memory for the CUDA context, libraries and CUDA graphs.", "BYTES"
    )
    activation_memory: str | None = option(
        None, "Measured peak of the activations. Default: an estimate.", "BYTES"
    )
    kv_cache_memory_bytes: str | None = option(None, "Size of the pool, instead of a GPU.", "BYTES")
    host_memory: str | None = option(
        None,
        "Free memory of a machine without a GPU; the pool is sized as by kvscope serve.",
        "BYTES",
    )
    block_size: int = option(_ENGINE.cache.block_size, "Tokens per block.", "TOKENS", least=1)
    max_model_len: int | None = option(
        None, "Tokens of the longest sequence. Default: the model's limit.", "TOKENS", least=1
    )
    concurrency: int = option(
        _ENGINE.max_num_seqs,
        "Sequences running at once.",
        "SEQUENCES",
        flags=("--concurrency", "--max-num-seqs"),
        least=1,
    )
    max_num_batched_tokens: int = option(
        DEFAULT_MAX_NUM_BATCHED_TOKENS,
        "Tokens computed in a step, with chunked prefill.",
        "TOKENS",
        least=1,
    )
    window_aware: bool = option(
        False,
        "Count only the window of sliding layers, as vLLM's hybrid manager keeps it.",
        flags=("--window-aware",),
    )
    output_json: bool = option(False, "Print one JSON document.", flags=("--json",))
    plot: Path | None = option(None, "Draw the plan to a .png, .svg or .pdf as well.", "FILE")
