"""The OTLP export of metrics and of traces, shown only while it is enabled."""

from kvscope_exporter.catalogue.metric import Metric

EXPORT_RESULTS = ("ok", "failed")
SPAN_RESULTS = ("ok", "failed", "dropped")

ATTRIBUTES = {
    "gen_ai": {
        "operation": "gen_ai.operation.name",
        "provider": "gen_ai.provider.name",
        "model_name": "gen_ai.request.model",
        "engine": "engine",
        "error_type": "error.type",
    },
    "hw": {
        "uuid": "hw.id",
        "name": "hw.name",
        "vendor": "hw.vendor",
        "driver_version": "hw.driver_version",
        "direction": "network.io.direction",
        "type": "error.type",
        "state": "hw.state",
    },
}
"""Names of labels in OpenTelemetry's conventions, by the first part of a metric's name there;
`kvscope.*` keeps the labels of the page."""
CONSTANT = {
    "hw.gpu.utilization": {"hw.gpu.task": "general"},
    "hw.errors": {"hw.type": "gpu"},
    "hw.status": {"hw.type": "gpu"},
    "hw.temperature": {"hw.type": "gpu"},
    "hw.power": {"hw.type": "gpu"},
    "hw.energy": {"hw.type": "gpu"},
}
"""Attributes that the conventions require beyond the device's own."""
DIRECTIONS = {"sent": "transmit", "received": "receive"}

OTLP = (
    Metric(
        name="kvscope_otlp_exports_total",
        kind="counter",
        help="Exports of all metrics by OTLP, by result.",
        notes="failed: the endpoint did not accept them in time, or no server's metrics could be "
        "collected.",
        unit="exports",
        group="self",
        labels={"result": EXPORT_RESULTS},
        otel_name="kvscope.otlp.exports",
    ),
    Metric(
        name="kvscope_otlp_servers_left_out_total",
        kind="counter",
        help="Servers left out of an OTLP export because their collection failed. Always a bug.",
        unit="servers",
        group="self",
        labels={},
        otel_name="kvscope.otlp.servers_left_out",
    ),
    Metric(
        name="kvscope_otlp_spans_total",
        kind="counter",
        help="Spans of requests sent by OTLP, by result.",
        notes="Shown while traces are on. failed: the endpoint did not accept them in time; "
        "dropped: too many spans waited or too many requests were in flight, or events were lost "
        "while the request was. What the sampler leaves out is not counted.",
        unit="spans",
        group="self",
        labels={"result": SPAN_RESULTS},
        otel_name="kvscope.otlp.spans",
    ),
)
