"""Settings that OpenTelemetry's library does not read itself: whether, where and how often to send.

Headers, time-outs, compression, certificates, the sampler, and the delay and batch of spans are
read from the standard variables by the library's exporters, processor and provider.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

PROTOCOL = "http/protobuf"
DEFAULT_INTERVAL_MS = 60_000
MIN_INTERVAL_MS = 100
MAX_INTERVAL_MS = 24 * 3600 * 1000
DEFAULT_QUEUE_SPANS = 2_048
MAX_QUEUE_SPANS = 1 << 16
"""A bound on memory, whatever the variable says."""

Signal = Literal["METRICS", "TRACES"]
_OPTIONS: dict[Signal, str] = {"METRICS": "--otlp-endpoint", "TRACES": "--otlp-traces-endpoint"}


class OtlpSettingError(ValueError):
    """A setting that cannot be used; the message names it, its value and what is expected."""

    def __init__(self, setting: str, value: str, expected: str) -> None:
        super().__init__(f"{setting} {value!r}: {expected}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Destination:
    url: str
    """The URL to which the signal is posted."""

    @property
    def shown_url(self) -> str:
        """For logs: without a password."""
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpConfig(_Destination):
    """Configuration of the export of metrics by OTLP."""

    interval_seconds: float = DEFAULT_INTERVAL_MS / 1000
    """OpenTelemetry's default; from the beginning of one export to that of the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracesConfig(_Destination):
    """Configuration of the export of traces by OTLP."""

    queue_spans: int = DEFAULT_QUEUE_SPANS
    """OpenTelemetry's default; maximum number of unsent spans, further ones are dropped."""


def otlp_config(endpoint: str | None, environment: Mapping[str, str]) -> OtlpConfig | None:
    """Configuration from the option, else from the environment; None: metrics are not sent.

    Raises OtlpSettingError.
    """
    url = _url("METRICS", endpoint, environment)
    if url is None:
        return None
    bounds = (DEFAULT_INTERVAL_MS, MIN_INTERVAL_MS, MAX_INTERVAL_MS)
    interval_ms = _whole("OTEL_METRIC_EXPORT_INTERVAL", "milliseconds", bounds, environment)
    return OtlpConfig(url=url, interval_seconds=interval_ms / 1000)


def traces_config(endpoint: str | None, environment: Mapping[str, str]) -> TracesConfig | None:
    """The same for traces."""
    url = _url("TRACES", endpoint, environment)
    if url is None:
        return None
    bounds = (DEFAULT_QUEUE_SPANS, 1, MAX_QUEUE_SPANS)
    return TracesConfig(
        url=url, queue_spans=_whole("OTEL_BSP_MAX_QUEUE_SIZE", "spans", bounds, environment)
    )


def _url(signal: Signal, endpoint: str | None, environment: Mapping[str, str]) -> str | None:
    """None: the signal is not sent."""
    own, common = f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
    if endpoint:
        setting, text = _OPTIONS[signal], endpoint
    elif _is_off(signal, environment):
        return None
    else:
        setting = own if environment.get(own, "").strip() else common
        text = environment.get(setting, "").strip()
        if not text:
            return None
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # an invalid port, half a bracket
        is_usable = False
    if not is_usable or parts.fragment or not text.isprintable() or " " in text:
        raise OtlpSettingError(setting, text, "expected http://HOST:4318, or https")
    _check_protocol(signal, environment)
    path = f"/v1/{signal.lower()}"
    if setting == own or parts.path.rstrip("/").endswith(path):
        return text  # as it is, by the specification
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path))


def _is_off(signal: Signal, environment: Mapping[str, str]) -> bool:
    exporters = environment.get(f"OTEL_{signal}_EXPORTER", "").strip() or "otlp"
    is_disabled = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return is_disabled or "otlp" not in [name.strip() for name in exporters.split(",")]


def _check_protocol(signal: Signal, environment: Mapping[str, str]) -> None:
    own = f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL"
    for name in (own, "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = environment.get(name, "").strip() or PROTOCOL
        if protocol != PROTOCOL:
            expected = f"kvscope sends {PROTOCOL} only; set {own}={PROTOCOL} and an endpoint that "
            raise OtlpSettingError(name, protocol, f"{expected}takes it, usually on port 4318")
        if environment.get(name, "").strip():
            return


def _whole(
    name: str, unit: str, bounds: tuple[int, int, int], environment: Mapping[str, str]
) -> int:
    """bounds: default, minimum and maximum."""
    default, least, most = bounds
    text = environment.get(name, "").strip() or str(default)
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else -1
    if not least <= value <= most:
        raise OtlpSettingError(name, text, f"expected whole {unit} from {least} to {most}")
    return value
