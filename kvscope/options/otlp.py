"""`--otlp-endpoint`: metrics by OTLP in addition to the pages."""

import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from kvscope.output import fail
from kvscope_exporter.clock import Clock
from kvscope_exporter.extras import lacking
from kvscope_exporter.otlp.settings import OtlpConfig, OtlpSettingError, Signal, otlp_config

if TYPE_CHECKING:
    from kvscope_exporter.otlp.feed import Observed
    from kvscope_exporter.otlp.outlet import Outlet, Served

OtlpEndpoint = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Send all metrics to this OTLP endpoint as well, http://HOST:4318; /v1/metrics is "
        "added to its path. Default: as OTEL_EXPORTER_OTLP_ENDPOINT says; their interval: "
        "OTEL_METRIC_EXPORT_INTERVAL.",
    ),
]

logger = logging.getLogger("kvscope")


def chosen_otlp(endpoint: str | None) -> OtlpConfig | None:
    """The export set by option and environment. Raises typer.Exit(2)."""
    return config_of("metrics", endpoint)


def config_of(signal: Signal, endpoint: str | None) -> OtlpConfig | None:
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


def outlet_of(
    config: OtlpConfig | None, servers: "Callable[[], Sequence[Served]]"
) -> "Outlet | None":
    """The export, not yet started. Raises typer.Exit(2)."""
    if config is None:
        return None
    from kvscope_exporter.otlp.outlet import Outlet  # imports OpenTelemetry: only if needed

    try:
        return Outlet(config, servers, Clock())
    except OtlpSettingError as error:
        raise fail(error) from None


def exporting(outlet: "Outlet | None") -> AbstractContextManager[object]:
    """Exports inside the block."""
    return nullcontext() if outlet is None else outlet
