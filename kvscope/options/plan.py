"""Options of `kvscope plan`."""

from dataclasses import dataclass
from pathlib import Path

from kvscope_engine.config import DEFAULT_MAX_NUM_BATCHED_TOKENS, EngineConfig
from kvscope_engine.option import option

_ENGINE = EngineConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Options as given on the command line; amounts of memory are still text."""

    model: str | None = option(
        None, "Folder of a checkpoint, its config.json, or a name on the Hugging Face hub.", "MODEL"
    )
    from_url: str | None = option(
        None,
        "A running server, or its kvscope: options that are not given are as there. A URL, "
        "HOST:PORT or HOST.",
        "SERVER",
        flags=("--from-url", "--from"),
    )
    layers_file: Path | None = option(
        None,
        "A file that describes what each layer keeps, instead of the checkpoint's fields.",
        "FILE",
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
    weights_memory: str | None = option(
        None, "Size of all weights together. Default: by the checkpoint's files or fields.", "BYTES"
    )
    dtype: str = option(
        "auto",
        "Type of the weights: fp32, bf16, fp16, fp8, int8, int4, mxfp4, nvfp4, or auto: as stored, "
        "quantized by quantization_config, bf16 where that is unknown.",
        "DTYPE",
    )
    kv_cache_dtype: str = option(
        "auto",
        "Type of K and V, as above; auto: as the checkpoint states it, else that of the "
        "weights, bf16 if those are quantized.",
        "DTYPE",
        flags=("--kv-cache-dtype", "--kv-dtype"),
    )
    mamba_ssm_cache_dtype: str = option(
        "auto",
        "Type of a state's recurrence, as in vLLM; auto: by config.json, else that of the weights.",
        "DTYPE",
    )
    gpu: str | None = option(
        None, "Name of a GPU, as nvidia-smi has it or short: H200, A100-80GB, L40S ...", "NAME"
    )
    tensor_parallel_size: int | None = option(
        None,
        "GPUs that share every layer. Default: the fewest that hold one sequence.",
        "GPUS",
        flags=("--tensor-parallel-size", "-tp"),
        least=1,
    )
    pipeline_parallel_size: int = option(
        1, "Stages of layers.", "STAGES", flags=("--pipeline-parallel-size", "-pp"), least=1
    )
    data_parallel_size: int = option(
        1,
        "Replicas; they share the experts of a model that has some.",
        "REPLICAS",
        flags=("--data-parallel-size", "-dp"),
        least=1,
    )
    decode_context_parallel_size: int = option(
        1,
        "GPUs of a tensor-parallel group that divide the tokens of a sequence, as in vLLM.",
        "GPUS",
        flags=("--decode-context-parallel-size", "-dcp"),
        least=1,
    )
    enable_expert_parallel: bool = option(
        False,
        "Give each GPU whole experts instead of a slice of all.",
        flags=("--enable-expert-parallel",),
    )
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
    kv_cache_memory_bytes: str | None = option(
        None, "Size of the pool on each GPU, instead of a GPU.", "BYTES"
    )
    kv_offloading_size: str | None = option(
        None, "Host memory below the pool of each replica.", "BYTES"
    )
    host_memory: str | None = option(
        None,
        "Free memory of a machine without a GPU; the pool is sized as by kvscope engine serve.",
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
    enable_prefix_caching: bool = option(
        True,
        "Keep states for the prefix cache, which takes further blocks, as vLLM does by default.",
    )
    disable_hybrid_kv_cache_manager: bool = option(
        False,
        "Layers with a window keep all tokens, as in kvscope engine serve and in a vLLM "
        "with this flag.",
        flags=("--disable-hybrid-kv-cache-manager",),
    )
    speculative_config: str | None = option(
        None,
        'A draft model, as for vLLM: \'{"model": "DRAFT", "num_speculative_tokens": 3}\'.',
        "JSON",
    )
    max_loras: int = option(
        0, "LoRA adapters in a batch, whose memory is reserved.", "ADAPTERS", least=0, most=4096
    )
    max_lora_rank: int = option(16, "Rank of the largest adapter.", "RANK", least=1, most=4096)
    plot: Path | None = option(None, "Draw the plan to a .png, .svg or .pdf as well.", "FILE")
