"""Configuration of commands that listen; imports neither web server nor NVML."""

import math
from dataclasses import dataclass
from pathlib import Path

from kvscope.options.gpu_devices import GpuDevices
from kvscope.options.recording import RecordingConfig
from kvscope_exporter.otlp.settings import OtlpConfig

SIDECAR_PORT = 8010
"""The page of `kvscope sidecar` and `run`. Not 9400, where NVIDIA's DCGM exporter listens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectionConfig:
    """Access to the ports; the files are read once, at the start."""

    api_key: str | None = None
    """Bearer token for the API; accepted besides those of the file."""
    api_key_file: Path | None = None
    metrics_key_file: Path | None = None
    """Bearer tokens for metrics pages."""
    web_config_file: Path | None = None
    """Prometheus' web configuration, for metrics pages."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names accepted for requests that change something without a key."""
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    """None: in the certificate's file."""

    def __post_init__(self) -> None:
        if self.api_key is not None:
            from kvscope_exporter.web.access.keys import check_key

            try:
                check_key(self.api_key)
            except ValueError as error:
                raise ValueError(f"api_key {error}") from None
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise ValueError("--ssl-keyfile without --ssl-certfile: give both, or none")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenConfig:
    """The server's addresses, and how it ends."""

    host: str = "127.0.0.1"
    """Loopback by default: the API has no authentication unless a key is set."""
    port: int = 8000
    """0: any free port."""
    metrics_port: int | None = None
    """Another port for /metrics and operators' routes; None: only the main one."""
    metrics_host: str = "127.0.0.1"
    protection: ProtectionConfig = ProtectionConfig()
    drain_seconds: float = 30.0
    """Time that requests in progress may take after a signal."""
    exit_on_failure: bool = False
    """Whether the process ends once its engine has failed. False: its pages stay available."""

    def __post_init__(self) -> None:
        if not 0 <= self.drain_seconds < math.inf:  # also refuses NaN
            raise ValueError(f"drain_seconds must be finite, got {self.drain_seconds}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    """Destinations of the engine's events."""

    compat: frozenset[str] = frozenset()
    """Compatibility sets on the page."""
    exporter: bool = True
    """Serve a page from this process."""
    event_endpoint: str | None = None
    """Address at which the events are published; None: they stay in this process."""
    log_stats: bool = True
    """False: the engine emits nothing."""
    gpu: bool = True
    gpu_devices: GpuDevices = GpuDevices.VISIBLE
    otlp: OtlpConfig | None = None
    """None: metrics are not sent by OTLP."""
    traces: OtlpConfig | None = None
    """None: no traces are sent."""
    recording: RecordingConfig | None = None
    """None: nothing is recorded."""
    acts: bool = False
    """Whether a page may have the engine's own requests sent: in the demo."""

    def __post_init__(self) -> None:
        if not self.log_stats and self.event_endpoint is not None:
            raise ValueError(
                "--event-endpoint has nothing to publish with --disable-log-stats: drop one"
            )
        if self.log_stats and not self.exporter and self.event_endpoint is None:
            raise ValueError(
                "--no-exporter without --event-endpoint leaves the events without a reader: add "
                "--event-endpoint, or give --disable-log-stats instead"
            )

    @property
    def serves_page(self) -> bool:
        return self.log_stats and self.exporter

    @property
    def reason_for_no_page(self) -> str:
        """The answer to a request for the page when it is not served."""
        if not self.log_stats:
            return "no metrics: this server runs with --disable-log-stats"
        return (
            "no metrics here: this server runs with --no-exporter and publishes its events at "
            f"{self.event_endpoint}; kvscope sidecar --events turns them into metrics"
        )
