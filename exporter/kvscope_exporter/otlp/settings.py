"""Whether a signal is sent by OTLP, and where to; the library reads all other OTEL_* variables."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

PROTOCOL = "http/protobuf"
Signal = Literal["metrics", "traces"]
_OPTIONS: dict[Signal, str] = {"metrics": "--otlp-endpoint", "traces": "--otlp-traces-endpoint"}


class OtlpSettingError(ValueError):
    """A setting that cannot be used; the message names it, its value and what is expected."""

    def __init__(self, setting: str, value: str, expected: str) -> None:
        super().__init__(f"{setting} {value!r}: {expected}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpConfig:
    """Configuration of the export of one signal."""

    url: str
    """The URL to which the signal is posted."""

    @property
    def shown_url(self) -> str:
        """For logs: without a password."""
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def otlp_config(
    signal: Signal, endpoint: str | None, environment: Mapping[str, str]
) -> OtlpConfig | None:
    """Configuration from the option, else from the environment; None: the signal is not sent.

    Raises OtlpSettingError.
    """

    def read(name: str) -> str:
        return environment.get(name, "").strip()

    prefix = f"OTEL_EXPORTER_OTLP_{signal.upper()}"
    exporters = (read(f"OTEL_{signal.upper()}_EXPORTER") or "otlp").split(",")
    given = {_OPTIONS[signal]: endpoint or ""}
    if "otlp" in [name.strip() for name in exporters]:
        for name in (f"{prefix}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"):
            given[name] = read(name)
    setting = next((name for name, text in given.items() if text), None)
    if setting is None or read("OTEL_SDK_DISABLED").lower() == "true":
        return None
    text = given[setting]
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # an invalid port, half a bracket
        is_usable = False
    if not is_usable or parts.fragment or not text.isprintable() or " " in text:
        raise OtlpSettingError(setting, text, "expected http://HOST:4318, or https")
    names = (f"{prefix}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    for name in [name for name in names if read(name)][:1]:
        if read(name) != PROTOCOL:
            expected = f"kvscope sends {PROTOCOL} only, which is usually taken on port 4318"
            raise OtlpSettingError(name, read(name), expected)
    path = f"/v1/{signal}"
    if setting.startswith(prefix) or parts.path.rstrip("/").endswith(path):
        return OtlpConfig(url=text)  # as it is, by the specification
    return OtlpConfig(url=urlunsplit(parts._replace(path=parts.path.rstrip("/") + path)))
