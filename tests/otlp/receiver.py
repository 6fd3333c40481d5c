"""An OTLP receiver over HTTP that decodes with OpenTelemetry's own protobuf classes."""

import gzip
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

Answer = Callable[[BaseHTTPRequestHandler], None]


def accept(handler: BaseHTTPRequestHandler) -> None:
    """200, as a receiver answers that has taken everything."""
    body = ExportMetricsServiceResponse().SerializeToString()
    handler.send_response(200)
    handler.send_header("Content-Type", "application/x-protobuf")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


class Receiver:
    """Listens inside the block, and keeps what came; `answer` may be replaced at any time."""

    def __init__(self, answer: Answer = accept) -> None:
        self.answer = answer
        self.requests: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        """Headers and paths of `requests`, which are those with metrics."""
        self.traces: list[ExportTraceServiceRequest] = []
        self.released = threading.Event()
        """Set at the end: an answer that hangs waits for it."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if self.path.endswith("/v1/traces"):
                    receiver.traces.append(ExportTraceServiceRequest.FromString(body))
                else:
                    receiver.paths.append(self.path)
                    receiver.headers.append({k.lower(): v for k, v in self.headers.items()})
                    receiver.requests.append(ExportMetricsServiceRequest.FromString(body))
                receiver.answer(self)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # a client that has gone

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def metrics_in(request: ExportMetricsServiceRequest) -> dict[str, Metric]:
    """By name; of a request of one resource."""
    (resource,) = request.resource_metrics
    (scope,) = resource.scope_metrics
    metrics = {metric.name: metric for metric in scope.metrics}
    assert len(metrics) == len(scope.metrics), "a metric is there twice"
    return metrics


def spans_in(requests: list[ExportTraceServiceRequest]) -> list[Span]:
    """Spans of all exports, in order of arrival."""
    return [
        span
        for request in requests
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def attributes_in(pairs: "list[KeyValue]") -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in pairs}
