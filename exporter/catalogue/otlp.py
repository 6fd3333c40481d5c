"""The OTLP export of metrics and of traces, shown only while it is enabled."""

from exporter.catalogue.metric import Metric

EXPORT_RESULTS = ("ok", "failed")
SPAN_RESULTS = ("ok", "failed", "dropped")

OTLP = (
    Metric(
        name="kvscope_otlp_exports_total",
        kind="counter",
        help="Exports of all metrics by OTLP, by result.",
        notes="failed: the endpoint did not accept them in time, they were dropped because it had "
        "not accepted earlier ones yet, or no server's metrics could be collected.",
        unit="exports",
        group="self",
        labels={"result": EXPORT_RESULTS},
        otel_name="kvscope.otlp.exports",
    ),
    Metric(
        name="kvscope_otlp_servers_left_out_total",
        kind="counter",
        help="Servers left out of an export by OTLP because collecting their metrics failed: a "
        "bug. The export has all other servers.",
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
