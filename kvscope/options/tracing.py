"""`--otlp-traces-endpoint`: a span of every request by OTLP."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from kvscope.options.otlp import config_of
from kvscope.output import fail
from kvscope_exporter.clock import Clock
from kvscope_exporter.otlp.settings import OtlpConfig, OtlpSettingError

if TYPE_CHECKING:
    from kvscope_exporter.tracing.session import Origin, Tracing

OtlpTracesEndpoint = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Send a trace span of every request to this OTLP endpoint, http://HOST:4318; "
        "/v1/traces is added to its path. Default: $OTEL_EXPORTER_OTLP_ENDPOINT. Sampling: "
        "$OTEL_TRACES_SAMPLER.",
    ),
]


def chosen_traces(endpoint: str | None) -> OtlpConfig | None:
    """The export set by option and environment. Raises typer.Exit(2)."""
    return config_of("traces", endpoint)


def tracing_of(
    config: OtlpConfig | None, origin_of: "Callable[[str], Origin] | None" = None
) -> "Tracing | None":
    """The running export. origin_of: the origin of a server, by name. Raises typer.Exit(2)."""
    if config is None:
        return None
    from kvscope_exporter.tracing.session import Origin, Tracing  # OpenTelemetry: only if needed

    try:
        return Tracing(config, Clock(), origin_of or (lambda _: Origin()))
    except OtlpSettingError as error:
        raise fail(error) from None


def tracing_until_end(tracing: "Tracing | None") -> AbstractContextManager[object]:
    """Sends the rest at the end of the block."""
    return nullcontext() if tracing is None else tracing
