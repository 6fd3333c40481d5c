"""`--otlp-endpoint`, `--otlp-traces-endpoint`: metrics and spans by OTLP besides the pages."""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from kvscope.output import fail
from kvscope_engine.option import option
from kvscope_exporter.clock import Clock
from kvscope_exporter.extras import lacking
from kvscope_exporter.otlp.settings import OtlpConfig, OtlpSettingError, Signal, otlp_config

if TYPE_CHECKING:
    from kvscope_exporter.otlp.feed import Observed
    from kvscope_exporter.otlp.outlet import Outlet, Served
    from kvscope_exporter.tracing.session import Origin, Tracing


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpOptions:
    """Destinations by OTLP; OpenTelemetry's own variables set everything else."""

    PANEL: ClassVar[str] = "OpenTelemetry"
    otlp_endpoint: str | None = option(
        None,
        "Send all metrics to this OTLP endpoint as well, http://HOST:4318; /v1/metrics is added to "
        "its path. Default: as OTEL_EXPORTER_OTLP_ENDPOINT says; their interval: "
        "OTEL_METRIC_EXPORT_INTERVAL.",
        "URL",
    )
    otlp_traces_endpoint: str | None = option(
        None,
        "Send a trace span of every request to this OTLP endpoint, http://HOST:4318; /v1/traces is "
        "added to its path. Default: $OTEL_EXPORTER_OTLP_ENDPOINT. Sampling: $OTEL_TRACES_SAMPLER.",
        "URL",
    )

    @property
    def given(self) -> str | None:
        """The first option that is set."""
        if self.otlp_endpoint is not None:
            return "--otlp-endpoint"
        return None if self.otlp_traces_endpoint is None else "--otlp-traces-endpoint"

    def check(self) -> None:
        """Raises typer.Exit(2) for what cannot be used, before anything is started."""
        _config_of("metrics", self.otlp_endpoint)
        _config_of("traces", self.otlp_traces_endpoint)


def _config_of(signal: Signal, endpoint: str | None) -> OtlpConfig | None:
    """The export of a signal set by option and environment. Raises typer.Exit(2)."""
    try:
        config = otlp_config(signal, endpoint, os.environ)
    except OtlpSettingError as error:
        raise fail(error) from None
    if config is not None and (problem := lacking(f"sending {signal} by OTLP", "otlp")):
        raise fail(problem)
    return config


def instance_of(port: int) -> str:
    """Distinguishes this process from others in a store of metrics."""
    return f"{socket.gethostname()}:{port}"


def served_as(
    instance: str, exporter: "Observed", labels: Mapping[str, str] | None = None
) -> "Served":
    """A server whose metrics are sent; labels: those of its resource."""
    from kvscope_exporter.otlp.outlet import Served

    return Served(instance=instance, exporter=exporter, labels=labels or {})


def outlet_of(options: OtlpOptions, servers: "Callable[[], Sequence[Served]]") -> "Outlet | None":
    """The export of metrics, not yet started. Raises typer.Exit(2)."""
    config = _config_of("metrics", options.otlp_endpoint)
    if config is None:
        return None
    from kvscope_exporter.otlp.outlet import Outlet  # imports OpenTelemetry: only if needed

    try:
        return Outlet(config, servers, Clock())
    except OtlpSettingError as error:
        raise fail(error) from None


def tracing_of(
    options: OtlpOptions, origin_of: "Callable[[str], Origin] | None" = None
) -> "Tracing | None":
    """The running export of spans. origin_of: the origin of a server, by name. Raises
    typer.Exit(2)."""
    config = _config_of("traces", options.otlp_traces_endpoint)
    if config is None:
        return None
    from kvscope_exporter.tracing.session import Origin, Tracing  # OpenTelemetry: only if needed

    try:
        return Tracing(config, Clock(), origin_of or (lambda _: Origin()))
    except OtlpSettingError as error:
        raise fail(error) from None


def until_end(export: "Outlet | Tracing | None") -> AbstractContextManager[object]:
    """Exports inside the block, and sends the rest at its end."""
    return nullcontext() if export is None else export
