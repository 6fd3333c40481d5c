"""The HTTP session of the exporter: remembers what went wrong, and reads no more than it must."""

from typing import Any

import requests
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from requests.exceptions import InvalidHeader

from exporter.otlp.settings import OtlpSettingError

MAX_ANSWER_BYTES = 64 << 10
_MAX_REASON = 200


class Session(requests.Session):
    """Requests one after the other. A body may be endless, so its beginning is read alone."""

    def __init__(self) -> None:
        super().__init__()
        self.problem = ""
        """Of the last request; empty: it succeeded."""

    def check(self, url: str) -> None:
        """Raises OtlpSettingError where the library cannot ask there."""
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
                self.problem = _rejected(response)
        return response


def _root(error: BaseException) -> BaseException:
    """What it began with: the library wraps `Connection refused` three times."""
    seen = {id(error)}
    while (inner := error.__cause__ or error.__context__) is not None and id(inner) not in seen:
        seen.add(id(inner))
        error = inner
    return error


def _rejected(response: requests.Response) -> str:
    """What a receiver says that took a part only; it must not be sent again."""
    answer = ExportMetricsServiceResponse()
    try:
        answer.ParseFromString(response.raw.read(MAX_ANSWER_BYTES, decode_content=True))
    except Exception:  # an answer that is none is none of ours: the points were taken
        return ""
    partial = answer.partial_success
    if not partial.rejected_data_points:
        return ""
    return _shortened(f"{partial.rejected_data_points} points rejected", partial.error_message)


def _shortened(what: str, detail: object) -> str:
    text = " ".join(str(detail).split())
    printable = "".join(c if c.isprintable() else "?" for c in text[:_MAX_REASON])
    return f"{what}: {printable}" if printable else what
