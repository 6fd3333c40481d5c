"""Where metrics are sent by OTLP, from the option and OpenTelemetry's standard variables.

What holds for every signal is here for traces as well (`exporter/tracing/settings.py`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

PROTOCOL = "http/protobuf"
DEFAULT_INTERVAL_MS = 60_000
MIN_INTERVAL_MS = 100
DEFAULT_TIMEOUT_MS = 10_000
MAX_MS = 24 * 3600 * 1000

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\s*=\s*[^\s;\"\\,]*")
"""What OpenTelemetry's library reads of an entry: a token, and a value without these."""
_EXAMPLE = "http://HOST:4318"


class Signal(NamedTuple):
    """One of OpenTelemetry's signals, in the names of its settings."""

    name: str
    """As in the standard variables: `METRICS`."""
    option: str

    @property
    def path(self) -> str:
        """What a base URL gets."""
        return f"/v1/{self.name.lower()}"

    @property
    def endpoint(self) -> str:
        return f"OTEL_EXPORTER_OTLP_{self.name}_ENDPOINT"

    @property
    def protocol(self) -> str:
        return f"OTEL_EXPORTER_OTLP_{self.name}_PROTOCOL"

    @property
    def headers(self) -> str:
        return f"OTEL_EXPORTER_OTLP_{self.name}_HEADERS"

    @property
    def timeout(self) -> str:
        return f"OTEL_EXPORTER_OTLP_{self.name}_TIMEOUT"


METRICS = Signal("METRICS", "--otlp-endpoint")


class OtlpSettingError(ValueError):
    """A setting that cannot be used; the message names it, its value and what is expected."""

    def __init__(self, setting: str, value: str, expected: str) -> None:
        super().__init__(f"{setting} {value!r}: {expected}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpConfig:
    """Configuration of the export by OTLP."""

    url: str
    """Where metrics are posted."""
    interval_seconds: float = DEFAULT_INTERVAL_MS / 1000
    """OpenTelemetry's default; from the beginning of one export to that of the next."""
    timeout_seconds: float = DEFAULT_TIMEOUT_MS / 1000
    """OpenTelemetry's default; for one export with all its attempts."""

    @property
    def shown_url(self) -> str:
        """For logs: without a password."""
        return shown(self.url)


def otlp_config(endpoint: str | None, environment: Mapping[str, str]) -> OtlpConfig | None:
    """What the option says, else the environment; None: metrics are not sent.

    As OpenTelemetry's specification wants it: an empty variable counts as unset, and durations are
    whole milliseconds. Raises OtlpSettingError.
    """
    url = url_of(METRICS, endpoint, environment)
    if url is None:
        return None
    interval = milliseconds(
        ("OTEL_METRIC_EXPORT_INTERVAL",), DEFAULT_INTERVAL_MS, MIN_INTERVAL_MS, environment
    )
    return OtlpConfig(
        url=url,
        interval_seconds=interval / 1000,
        timeout_seconds=timeout_seconds(METRICS, environment),
    )


def url_of(signal: Signal, endpoint: str | None, environment: Mapping[str, str]) -> str | None:
    """Where the signal is posted; None: it is not sent. Raises OtlpSettingError, also for a
    protocol or headers that cannot be used."""
    url = _url(signal, endpoint, environment)
    if url is not None:
        _check_protocol(signal, environment)
        _check_headers(signal, environment)
    return url


def timeout_seconds(signal: Signal, environment: Mapping[str, str]) -> float:
    """For one export with all its attempts. Raises OtlpSettingError."""
    timeouts = (signal.timeout, "OTEL_EXPORTER_OTLP_TIMEOUT")
    return milliseconds(timeouts, DEFAULT_TIMEOUT_MS, 1, environment) / 1000


def shown(url: str) -> str:
    """For logs: without a password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _url(signal: Signal, endpoint: str | None, environment: Mapping[str, str]) -> str | None:
    if endpoint:
        return _with_path(signal, signal.option, endpoint)
    exporters = environment.get(f"OTEL_{signal.name}_EXPORTER", "").strip() or "otlp"
    if "otlp" not in [name.strip() for name in exporters.split(",")]:
        return None
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    own, common = signal.endpoint, "OTEL_EXPORTER_OTLP_ENDPOINT"
    if text := environment.get(own, "").strip():
        _check_url(own, text)
        return text  # as it is, by the specification
    if text := environment.get(common, "").strip():
        return _with_path(signal, common, text)
    return None


def _with_path(signal: Signal, setting: str, text: str) -> str:
    """A base URL with the signal's path; one that has that path stays as it is."""
    _check_url(setting, text)
    parts = urlsplit(text)
    path = parts.path.rstrip("/")
    if not path.endswith(signal.path):
        path += signal.path
    return urlunsplit(parts._replace(path=path))


def _check_url(setting: str, text: str) -> None:
    expected = f"expected {_EXAMPLE}, or https"
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError as error:  # a port that is none, half a bracket
        raise OtlpSettingError(setting, text, f"{expected}: {error}") from None
    if not is_usable or any(not c.isprintable() or c.isspace() for c in text) or parts.fragment:
        raise OtlpSettingError(setting, text, expected)


def _check_protocol(signal: Signal, environment: Mapping[str, str]) -> None:
    for name in (signal.protocol, "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if protocol := environment.get(name, "").strip():
            if protocol != PROTOCOL:
                raise OtlpSettingError(
                    name,
                    protocol,
                    f"kvscope sends {PROTOCOL} only; set {signal.protocol}={PROTOCOL} "
                    "and an endpoint that takes it, usually on port 4318",
                )
            return


def _check_headers(signal: Signal, environment: Mapping[str, str]) -> None:
    """The library leaves out what it cannot read; nothing of it is shown, since it holds keys."""
    for name in (signal.headers, "OTEL_EXPORTER_OTLP_HEADERS"):
        for entry in filter(None, map(str.strip, environment.get(name, "").split(","))):
            if not _HEADER.fullmatch(entry) or not unquote(entry).isprintable():
                expected = "expected name=value, several with commas, values percent-encoded"
                raise OtlpSettingError(name, "(not shown)", expected)


def milliseconds(
    names: tuple[str, ...], default: int, least: int, environment: Mapping[str, str]
) -> int:
    """Of the first variable that is set. Raises OtlpSettingError."""
    for name in names:
        if text := environment.get(name, "").strip():
            value = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else -1
            if not least <= value <= MAX_MS:
                expected = f"expected whole milliseconds from {least} to {MAX_MS}"
                raise OtlpSettingError(name, text, expected)
            return value
    return default
