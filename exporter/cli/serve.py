"""`kvscope serve`: the engine and its exporter, flags named as vLLM's where vLLM has them."""

from enum import StrEnum
from typing import Annotated

import typer

from engine.config import (
    DEFAULT_GPU_MEMORY_UTILIZATION,
    DEFAULT_MAX_NUM_BATCHED_TOKENS,
    DEFAULT_MAX_NUM_SEQS,
    CacheConfig,
    ModelConfig,
)
from exporter.catalogue import COMPAT_SETS
from exporter.cli.gpu_devices import GpuDevices
from exporter.cli.server import ListenConfig, configure_logging, fail, require_engine, run


class Dtype(StrEnum):
    """Values of --dtype."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class Device(StrEnum):
    """Values of --device."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class Policy(StrEnum):
    """Values of --scheduling-policy."""

    FCFS = "fcfs"
    PRIORITY = "priority"


_MODEL = "Model"
_POOL = "KV pool"
_SCHEDULER = "Scheduler"
_SERVER = "Server"
_METRICS = "Metrics"


def serve(
    model: Annotated[
        str,
        typer.Option(
            help="Folder of a Hugging Face checkpoint (safetensors), a hub name, or 'demo': a "
            "small random model made on the spot.",
            rich_help_panel=_MODEL,
        ),
    ] = "demo",
    served_model_name: Annotated[
        str | None,
        typer.Option(
            help="Name in the API and in metrics. Default: --model.", rich_help_panel=_MODEL
        ),
    ] = None,
    dtype: Annotated[
        Dtype, typer.Option(help="Of weights and KV; auto: as stored.", rich_help_panel=_MODEL)
    ] = Dtype.AUTO,
    device: Annotated[
        Device, typer.Option(help="auto: CUDA where there is one.", rich_help_panel=_MODEL)
    ] = Device.AUTO,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            max=2**63 - 1,
            help="Of sampling without a seed, and of the demo model.",
            rich_help_panel=_MODEL,
        ),
    ] = 0,
    max_model_len: Annotated[
        int | None,
        typer.Option(
            min=1, help="Prompt and output tokens. Default: the model's.", rich_help_panel=_MODEL
        ),
    ] = None,
    block_size: Annotated[
        int, typer.Option(min=1, help="Tokens per block.", rich_help_panel=_POOL)
    ] = 16,
    num_gpu_blocks_override: Annotated[
        int | None,
        typer.Option(
            min=1, help="Blocks in the pool, on a CPU too; wins over bytes.", rich_help_panel=_POOL
        ),
    ] = None,
    kv_cache_memory_bytes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Bytes for the pool. Default on CUDA: measured; on a CPU: a quarter of the free "
            "memory, at most what --max-num-seqs full sequences need.",
            rich_help_panel=_POOL,
        ),
    ] = None,
    gpu_memory_utilization: Annotated[
        float,
        typer.Option(
            min=0.01,
            max=1.0,
            help="On CUDA: share of the device's total memory for weights, activations and pool.",
            rich_help_panel=_POOL,
        ),
    ] = DEFAULT_GPU_MEMORY_UTILIZATION,
    enable_prefix_caching: Annotated[
        bool, typer.Option(help="Keep finished prefixes findable.", rich_help_panel=_POOL)
    ] = True,
    max_num_seqs: Annotated[
        int, typer.Option(min=1, help="Sequences running at once.", rich_help_panel=_SCHEDULER)
    ] = DEFAULT_MAX_NUM_SEQS,
    max_num_batched_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"Tokens computed in a step. Default: {DEFAULT_MAX_NUM_BATCHED_TOKENS}; without "
            "chunked prefill at least --max-model-len.",
            rich_help_panel=_SCHEDULER,
        ),
    ] = None,
    enable_chunked_prefill: Annotated[
        bool,
        typer.Option(help="Split long prompts over several steps.", rich_help_panel=_SCHEDULER),
    ] = True,
    scheduling_policy: Annotated[
        Policy,
        typer.Option(help="By arrival, or by the request's priority.", rich_help_panel=_SCHEDULER),
    ] = Policy.FCFS,
    max_num_queued_reqs: Annotated[
        int,
        typer.Option(
            min=1, help="Waiting requests before new ones get 429.", rich_help_panel=_SCHEDULER
        ),
    ] = 1024,
    host: Annotated[
        str, typer.Option(help="Address to listen on.", rich_help_panel=_SERVER)
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="0: a free one.", rich_help_panel=_SERVER)
    ] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(help="Bearer token that /v1 asks for.", rich_help_panel=_SERVER),
    ] = None,
    drain_seconds: Annotated[
        float,
        typer.Option(
            min=0, help="Wait for requests at SIGTERM or Ctrl-C.", rich_help_panel=_SERVER
        ),
    ] = 30.0,
    stall_seconds: Annotated[
        float,
        typer.Option(
            min=0.1,
            help="Work, but no step for so long: /health says 503.",
            rich_help_panel=_SERVER,
        ),
    ] = 60.0,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Serve /metrics on a port of its own, too.",
            rich_help_panel=_METRICS,
        ),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option(help="Address of --metrics-port.", rich_help_panel=_METRICS)
    ] = "127.0.0.1",
    compat: Annotated[
        str,
        typer.Option(
            help="Other servers' metric names to serve as well, by comma: "
            f"{', '.join(sorted(COMPAT_SETS))}; or none.",
            rich_help_panel=_METRICS,
        ),
    ] = ",".join(sorted(COMPAT_SETS)),
    gpu: Annotated[
        bool,
        typer.Option(
            help="Read NVIDIA GPUs through NVML. POST /api/gpu/release lets go of them for a "
            "while.",
            rich_help_panel=_METRICS,
        ),
    ] = True,
    gpu_devices: Annotated[
        GpuDevices,
        typer.Option(
            help="Those that CUDA_VISIBLE_DEVICES leaves to this process, or all of the host.",
            rich_help_panel=_METRICS,
        ),
    ] = GpuDevices.VISIBLE,
    disable_log_stats: Annotated[
        bool,
        typer.Option(
            "--disable-log-stats", help="No events, no /metrics.", rich_help_panel=_METRICS
        ),
    ] = False,
) -> None:
    """Serve a model over OpenAI's API, and report every block of its KV cache.

    Example: kvscope serve --model ./Qwen3-0.6B --port 8000
    """
    configure_logging()
    require_engine()
    from engine.build import EngineConfig

    if disable_log_stats and metrics_port is not None:
        raise fail("--metrics-port has nothing to serve with --disable-log-stats: drop one")
    try:
        config = EngineConfig(
            model=ModelConfig(
                model=model,
                served_model_name=served_model_name,
                dtype=dtype.value,
                device=device.value,
                seed=seed,
            ),
            cache=CacheConfig(
                block_size=block_size,
                num_gpu_blocks_override=num_gpu_blocks_override,
                kv_cache_memory_bytes=kv_cache_memory_bytes,
                gpu_memory_utilization=gpu_memory_utilization,
                enable_prefix_caching=enable_prefix_caching,
            ),
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            enable_chunked_prefill=enable_chunked_prefill,
            policy=scheduling_policy.value,
            max_num_queued_reqs=max_num_queued_reqs,
            stall_seconds=stall_seconds,
        )
        listen = ListenConfig(
            host=host,
            port=port,
            metrics_port=metrics_port,
            metrics_host=metrics_host,
            api_key=api_key,
            drain_seconds=drain_seconds,
        )
    except ValueError as error:
        raise fail(str(error)) from None
    run(
        config,
        listen,
        compat=parse_compat(compat),
        collect=not disable_log_stats,
        gpu=gpu,
        gpu_devices=gpu_devices,
    )


def parse_compat(text: str) -> frozenset[str]:
    """`vllm,vllm-legacy` → a set; `none` is the empty one."""
    names = frozenset(part.strip() for part in text.split(",")) - {""}
    if names == {"none"}:
        return frozenset()
    unknown = sorted(names - COMPAT_SETS)
    if unknown:
        known = ", ".join(sorted(COMPAT_SETS))
        raise fail(f"--compat {text!r}: {unknown[0]!r} is unknown; expected {known}, or none")
    return names
