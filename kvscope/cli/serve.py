"""`kvscope serve`: the engine and its exporter in one process."""

import typer

from engine.config import CacheConfig, EngineConfig, ModelConfig, SwapConfig
from kvscope.options import engine as engine
from kvscope.options import protection as protection
from kvscope.options import server as server
from kvscope.options.compat import DEFAULT_SETS, Compat, parse_compat
from kvscope.options.configuration import ListenConfig, ProtectionConfig, TelemetryConfig
from kvscope.options.gpu_devices import Gpu, GpuDevices, WatchedDevices
from kvscope.options.kv_events import KvEventsOption, chosen_kv_events
from kvscope.options.model import chosen_model
from kvscope.options.otlp import OtlpEndpoint, chosen_otlp
from kvscope.options.tracing import OtlpTracesEndpoint, chosen_traces
from kvscope.output import configure_logging, fail
from kvscope.serving.stacks import show_stacks

_DEFAULT = EngineConfig(model=ModelConfig(), cache=CacheConfig())
_DTYPE = engine.DtypeName(_DEFAULT.model.dtype)
_DEVICE = engine.DeviceName(_DEFAULT.model.device)
_ATTENTION = engine.AttentionName(_DEFAULT.model.attention_backend)
_KV_CACHE_DTYPE = engine.KvCacheDtypeName(_DEFAULT.cache.kv_cache_dtype)
_POLICY = engine.PolicyName(_DEFAULT.policy)
_PREEMPTION = engine.PreemptionModeName(_DEFAULT.swap.mode)
_LISTEN = ListenConfig()


def serve(
    context: typer.Context,
    checkpoint: engine.Checkpoint = None,
    model: engine.Model = _DEFAULT.model.model,
    served_model_name: engine.ServedModelName = None,
    dtype: engine.Dtype = _DTYPE,
    device: engine.Device = _DEVICE,
    attention_backend: engine.AttentionBackend = _ATTENTION,
    enforce_eager: engine.EnforceEager = _DEFAULT.model.enforce_eager,
    seed: engine.Seed = _DEFAULT.model.seed,
    max_model_len: engine.MaxModelLen = None,
    block_size: engine.BlockSize = _DEFAULT.cache.block_size,
    num_gpu_blocks_override: engine.NumBlocks = None,
    kv_cache_memory_bytes: engine.PoolBytes = None,
    gpu_memory_utilization: engine.MemoryUtilization = _DEFAULT.cache.gpu_memory_utilization,
    kv_cache_dtype: engine.KvCacheDtype = _KV_CACHE_DTYPE,
    enable_prefix_caching: engine.PrefixCaching = _DEFAULT.cache.enable_prefix_caching,
    max_num_seqs: engine.MaxNumSeqs = _DEFAULT.max_num_seqs,
    max_num_batched_tokens: engine.MaxNumBatchedTokens = None,
    enable_chunked_prefill: engine.ChunkedPrefill = _DEFAULT.enable_chunked_prefill,
    scheduling_policy: engine.Policy = _POLICY,
    priority_aging: engine.PriorityAging = _DEFAULT.priority_aging_seconds,
    preemption_mode: engine.PreemptionMode = _PREEMPTION,
    swap_space: engine.SwapSpace = None,
    max_num_queued_reqs: engine.MaxNumQueued = _DEFAULT.max_num_queued_reqs,
    max_client_requests: engine.MaxClientRequests = None,
    max_client_tokens: engine.MaxClientTokens = None,
    stall_seconds: engine.StallSeconds = _DEFAULT.stall_seconds,
    host: server.Host = _LISTEN.host,
    port: server.Port = _LISTEN.port,
    api_key: protection.ApiKey = None,
    api_key_file: protection.ApiKeyFile = None,
    allowed_host: protection.AllowedHost = None,
    ssl_certfile: protection.SslCertfile = None,
    ssl_keyfile: protection.SslKeyfile = None,
    drain_seconds: server.DrainSeconds = _LISTEN.drain_seconds,
    exit_on_failure: server.ExitOnFailure = _LISTEN.exit_on_failure,
    metrics_port: server.MetricsPort = None,
    metrics_host: server.MetricsHost = _LISTEN.metrics_host,
    metrics_key_file: protection.MetricsKeyFile = None,
    web_config_file: protection.WebConfigFile = None,
    event_endpoint: server.EventEndpoint = None,
    kv_events_config: KvEventsOption = None,
    exporter: server.WithExporter = True,
    compat: Compat = DEFAULT_SETS,
    otlp_endpoint: OtlpEndpoint = None,
    otlp_traces_endpoint: OtlpTracesEndpoint = None,
    gpu: Gpu = True,
    gpu_devices: WatchedDevices = GpuDevices.VISIBLE,
    disable_log_stats: server.DisableLogStats = False,
) -> None:
    """Serve a model over OpenAI's API, and report its KV cache.

    /metrics and /health answer from the start, /v1 once the model is loaded.

    Example: kvscope serve --model ./Qwen3-0.6B --port 8000
    """
    from kvscope.serving.engine import require_engine, run_engine

    configure_logging()
    show_stacks()
    require_engine()
    sets = parse_compat(compat)
    otlp = chosen_otlp(otlp_endpoint)
    traces = chosen_traces(otlp_traces_endpoint)
    try:
        config = EngineConfig(
            model=ModelConfig(
                model=chosen_model(context, checkpoint, model) or model,
                served_model_name=served_model_name,
                dtype=dtype.value,
                device=device.value,
                attention_backend=attention_backend.value,
                enforce_eager=enforce_eager,
                seed=seed,
            ),
            cache=CacheConfig(
                block_size=block_size,
                num_gpu_blocks_override=num_gpu_blocks_override,
                kv_cache_memory_bytes=kv_cache_memory_bytes,
                gpu_memory_utilization=gpu_memory_utilization,
                kv_cache_dtype=kv_cache_dtype.value,
                enable_prefix_caching=enable_prefix_caching,
            ),
            swap=SwapConfig(mode=preemption_mode.value, space_gib=swap_space),
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            enable_chunked_prefill=enable_chunked_prefill,
            policy=scheduling_policy.value,
            priority_aging_seconds=priority_aging,
            max_num_queued_reqs=max_num_queued_reqs,
            max_client_requests=max_client_requests,
            max_client_tokens=max_client_tokens,
            stall_seconds=stall_seconds,
        )
        listen = ListenConfig(
            host=host,
            port=port,
            metrics_port=metrics_port,
            metrics_host=metrics_host,
            protection=ProtectionConfig(
                api_key=api_key,
                api_key_file=api_key_file,
                metrics_key_file=metrics_key_file,
                web_config_file=web_config_file,
                allowed_hosts=tuple(allowed_host or ()),
                ssl_certfile=ssl_certfile,
                ssl_keyfile=ssl_keyfile,
            ),
            drain_seconds=drain_seconds,
            exit_on_failure=exit_on_failure,
        )
        observe = TelemetryConfig(
            compat=sets,
            exporter=exporter,
            event_endpoint=event_endpoint,
            kv_events=chosen_kv_events(kv_events_config, prefix_caching=enable_prefix_caching),
            log_stats=not disable_log_stats,
            gpu=gpu,
            gpu_devices=gpu_devices,
            otlp=otlp,
            traces=traces,
        )
        if not observe.serves_page:
            reason = "--disable-log-stats" if disable_log_stats else "--no-exporter"
            if metrics_port is not None:
                raise ValueError(f"--metrics-port has nothing to serve with {reason}: drop one")
            for option, given in (
                ("--otlp-endpoint", otlp_endpoint),
                ("--otlp-traces-endpoint", otlp_traces_endpoint),
            ):
                if given is not None:
                    raise ValueError(f"{option} has nothing to send with {reason}: drop one")
    except ValueError as error:
        raise fail(error) from None
    run_engine(config, listen, observe)
