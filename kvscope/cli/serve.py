"""`kvscope serve`: the engine and its exporter in one process."""

from dataclasses import replace

import typer

from kvscope.options import protection as protection
from kvscope.options import server as server
from kvscope.options.compat import DEFAULT_SETS, Compat, parse_compat
from kvscope.options.configuration import ListenConfig, ProtectionConfig, TelemetryConfig
from kvscope.options.generated import with_options
from kvscope.options.gpu_devices import Gpu, GpuDevices, WatchedDevices
from kvscope.options.model import Checkpoint, chosen_model
from kvscope.options.otlp import OtlpEndpoint, chosen_otlp
from kvscope.options.recording import (
    DEFAULT_BYTES,
    DEFAULT_KEEP,
    Keep,
    KeepBytes,
    RecordDir,
    recording_of,
)
from kvscope.options.tracing import OtlpTracesEndpoint, chosen_traces
from kvscope.output import configure_logging, fail
from kvscope.serving.stacks import show_stacks
from kvscope_engine.config import EngineConfig

_DEFAULT = EngineConfig()
_LISTEN = ListenConfig()


@with_options
def serve(
    context: typer.Context,
    checkpoint: Checkpoint = None,
    config: EngineConfig = _DEFAULT,
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
    exporter: server.WithExporter = True,
    compat: Compat = DEFAULT_SETS,
    keep: Keep = DEFAULT_KEEP,
    keep_bytes: KeepBytes = DEFAULT_BYTES,
    record_dir: RecordDir = None,
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
        name = chosen_model(context, checkpoint, config.model.model) or config.model.model
        config = replace(config, model=replace(config.model, model=name))
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
            log_stats=not disable_log_stats,
            gpu=gpu,
            gpu_devices=gpu_devices,
            otlp=otlp,
            traces=traces,
            recording=recording_of(keep, keep_bytes, record_dir),
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
