"""The HTTP session and the resource, which exports of metrics and of traces share."""

import functools
import logging
from collections.abc import Mapping
from typing import Any

import requests
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.version import __version__ as SDK_VERSION
from requests.exceptions import InvalidHeader

from kvscope_events.printable import quoted
from kvscope_exporter import build_version
from kvscope_exporter.otlp.settings import OtlpSettingError, Signal

MAX_ANSWER_BYTES = 64 << 10
_INSTANCE = "service.instance.id"


class Session(requests.Session):
    """Remembers what went wrong, which the library only logs, and reads no endless answer."""

    def __init__(self, signal: Signal, url: str) -> None:
        """Raises OtlpSettingError for what cannot be sent."""
        super().__init__()
        self._answers = ExportMetricsServiceResponse
        kind = "metric" if signal == "metrics" else "trace"
        if signal == "traces":
            self._answers = ExportTraceServiceResponse
        self.problem = ""
        """Empty: the last request succeeded."""
        for name in (f"exporter.otlp.proto.http.{kind}_exporter", "util"):  # this logs headers
            logging.getLogger(f"opentelemetry.{name}").setLevel(logging.CRITICAL)
        try:
            self.prepare_request(requests.Request("POST", url))
        except requests.RequestException as error:
            raise OtlpSettingError("OTLP endpoint", url, f"expected a URL: {error}") from None

    def request(self, *arguments: Any, **options: Any) -> requests.Response:
        try:
            with super().request(*arguments, **{**options, "stream": True}) as response:
                answer = response.raw.read(MAX_ANSWER_BYTES, decode_content=True)
        except Exception as error:
            root: BaseException = error
            for _ in range(8):  # `Connection refused` is wrapped three times
                root = root.__cause__ or root.__context__ or root
            is_secret = isinstance(error, InvalidHeader)
            reason = "see OTEL_EXPORTER_OTLP_HEADERS" if is_secret else quoted(str(root))
            self.problem = f"{type(error).__name__}: {reason}"
            raise
        self.problem = f"HTTP {response.status_code}: {quoted(response.reason or '')}"
        if response.status_code < 300:  # a redirection is not followed
            self.problem = self._rejected(answer)
        return response

    def _rejected(self, answer: bytes) -> str:
        """Points or spans that a receiver leaves out; they must not be sent again."""
        try:
            partial = self._answers.FromString(answer).partial_success
        except Exception:  # no message of the protocol; the status says enough
            return ""
        number = next((value for field, value in partial.ListFields() if field.number == 1), 0)
        return f"{number} rejected: {quoted(partial.error_message)}" if number else ""


@functools.cache
def _of_environment() -> Mapping[str, Any]:
    """Read once: the library logs every malformed attribute each time."""
    return dict(OTELResourceDetector().detect().attributes)


def resource_of(instance: str, labels: Mapping[str, str], *, is_only: bool) -> Resource:
    """OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.

    is_only: if False, an instance id from the environment, which is that of this process, gets the
    server's own appended, since no two resources may have the same one.
    """
    given = dict(_of_environment())
    if _INSTANCE in given and not is_only:
        given[_INSTANCE] = f"{given[_INSTANCE]}/{instance}"
    library = {"name": "opentelemetry", "language": "python", "version": SDK_VERSION}
    service = {"service.name": "kvscope", "service.version": build_version(), _INSTANCE: instance}
    sdk = {f"telemetry.sdk.{name}": text for name, text in library.items()}
    return Resource({**sdk, **service, **labels, **given})
