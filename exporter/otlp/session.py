"""The HTTP session of the exporter: remembers errors, and reads no more than it must."""

import logging
from collections.abc import Callable
from typing import Any

import requests
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from requests.exceptions import InvalidHeader

from exporter.otlp.settings import OtlpSettingError
from kvscope_events.printable import quoted


def quiet_libraries() -> None:
    """Quieten the libraries for the whole process; called before the first export."""
    logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
    logging.getLogger("opentelemetry.util").setLevel(logging.CRITICAL)  # it logs headers' values
    logging.getLogger("urllib3").setLevel(logging.ERROR)


MAX_ANSWER_BYTES = 64 << 10


Rejected = Callable[[bytes], tuple[str, str]]
"""Reads from an answer what was rejected, and why; empty: nothing was."""


def rejected_points(answer: bytes) -> tuple[str, str]:
    """Rejected points of an export of metrics. Raises DecodeError."""
    partial = ExportMetricsServiceResponse.FromString(answer).partial_success
    count = partial.rejected_data_points
    return f"{count} points rejected" if count else "", partial.error_message


def rejected_spans(answer: bytes) -> tuple[str, str]:
    """Rejected spans of an export of traces. Raises DecodeError."""
    partial = ExportTraceServiceResponse.FromString(answer).partial_success
    count = partial.rejected_spans
    return f"{count} spans rejected" if count else "", partial.error_message


class Session(requests.Session):
    """Sends requests one after the other. A body may be endless, so only its beginning is read."""

    def __init__(self, rejected: Rejected) -> None:
        super().__init__()
        self._rejected = rejected
        self.problem = ""
        """Error of the last request; empty: it succeeded."""

    def check(self, url: str) -> None:
        """Raises OtlpSettingError if the library cannot send requests there."""
        try:
            self.prepare_request(requests.Request("POST", url))
        except requests.RequestException as error:
            raise OtlpSettingError("OTLP endpoint", url, f"expected a URL: {error}") from None

    def request(self, *arguments: Any, **options: Any) -> requests.Response:
        self.problem = "no answer"
        try:
            response = super().request(*arguments, **{**options, "stream": True})
        except Exception as error:
            reason = "" if isinstance(error, InvalidHeader) else _root(error)  # it has the secret
            self.problem = _shortened(type(error).__name__, reason)
            raise
        with response:
            if response.status_code >= 300:  # a redirection is not followed
                self.problem = _shortened(f"HTTP {response.status_code}", response.reason)
            else:
                self.problem = self._problem_of(response)
        return response

    def _problem_of(self, response: requests.Response) -> str:
        """The message of a receiver that took only part; that export must not be repeated."""
        try:
            rejected, reason = self._rejected(
                response.raw.read(MAX_ANSWER_BYTES, decode_content=True)
            )
        except Exception:  # a malformed response body: the spans were accepted, so ignore it
            return ""
        return _shortened(rejected, reason) if rejected else ""


def _root(error: BaseException) -> BaseException:
    """The root cause: the library wraps `Connection refused` three times."""
    seen = {id(error)}
    while (inner := error.__cause__ or error.__context__) is not None and id(inner) not in seen:
        seen.add(id(inner))
        error = inner
    return error


def _shortened(what: str, detail: object) -> str:
    reason = quoted(str(detail))
    return f"{what}: {reason}" if reason else what
