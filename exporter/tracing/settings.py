"""Where traces are sent and which of them, from the option and OpenTelemetry's variables."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from exporter.otlp.settings import (
    DEFAULT_TIMEOUT_MS,
    OtlpSettingError,
    Signal,
    milliseconds,
    shown,
    timeout_seconds,
    url_of,
)

SamplerName = Literal[
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
]
TRACES = Signal("TRACES", "--otlp-traces-endpoint")

DEFAULT_DELAY_MS = 5_000
DEFAULT_QUEUE_SPANS = 2_048
DEFAULT_BATCH_SPANS = 512
MAX_QUEUE_SPANS = 1 << 16
"""A bound on memory, whatever the variable says."""

_DELAY = "OTEL_BSP_SCHEDULE_DELAY"
_QUEUE = "OTEL_BSP_MAX_QUEUE_SIZE"
_BATCH = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"


@dataclass(frozen=True, slots=True, kw_only=True)
class TracesConfig:
    """Configuration of the export of traces; the defaults are OpenTelemetry's."""

    url: str
    """Where traces are posted."""
    timeout_seconds: float = DEFAULT_TIMEOUT_MS / 1000
    """For one export with all its attempts."""
    sampler: SamplerName = "parentbased_always_on"
    ratio: float = 1.0
    """Of traces that a sampler by ratio keeps."""
    delay_seconds: float = DEFAULT_DELAY_MS / 1000
    """Longest wait of a span for others."""
    queue_spans: int = DEFAULT_QUEUE_SPANS
    """Spans that wait or are being sent; others are dropped."""
    batch_spans: int = DEFAULT_BATCH_SPANS
    """Of one export."""

    @property
    def shown_url(self) -> str:
        """For logs: without a password."""
        return shown(self.url)


def traces_config(endpoint: str | None, environment: Mapping[str, str]) -> TracesConfig | None:
    """What the option says, else the environment; None: no traces are sent.

    The rules are those of metrics. Raises OtlpSettingError.
    """
    url = url_of(TRACES, endpoint, environment)
    if url is None:
        return None
    sampler, ratio = _sampler(environment)
    queue_spans = _spans(_QUEUE, DEFAULT_QUEUE_SPANS, MAX_QUEUE_SPANS, environment)
    default = min(DEFAULT_BATCH_SPANS, queue_spans)
    return TracesConfig(
        url=url,
        timeout_seconds=timeout_seconds(TRACES, environment),
        sampler=sampler,
        ratio=ratio,
        delay_seconds=milliseconds((_DELAY,), DEFAULT_DELAY_MS, 1, environment) / 1000,
        queue_spans=queue_spans,
        batch_spans=_spans(_BATCH, default, queue_spans, environment),
    )


def _sampler(environment: Mapping[str, str]) -> tuple[SamplerName, float]:
    text = environment.get("OTEL_TRACES_SAMPLER", "").strip() or "parentbased_always_on"
    known: tuple[SamplerName, ...] = get_args(SamplerName)
    name = next((name for name in known if name == text.lower()), None)
    if name is None:
        raise OtlpSettingError("OTEL_TRACES_SAMPLER", text, f"expected one of {', '.join(known)}")
    argument = environment.get("OTEL_TRACES_SAMPLER_ARG", "").strip()
    if not name.endswith("traceidratio") or not argument:
        return name, 1.0
    try:
        ratio = float(argument)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise OtlpSettingError("OTEL_TRACES_SAMPLER_ARG", argument, "expected a ratio from 0 to 1")
    return name, ratio


def _spans(name: str, default: int, most: int, environment: Mapping[str, str]) -> int:
    text = environment.get(name, "").strip()
    if not text:
        return default
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0
    if not 1 <= value <= most:
        raise OtlpSettingError(name, text, f"expected a number of spans from 1 to {most}")
    return value
