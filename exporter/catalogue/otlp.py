"""The export by OTLP, shown only while it is on."""

from exporter.catalogue.metric import Metric

EXPORT_RESULTS = ("ok", "failed")

OTLP = (
    Metric(
        name="kvscope_otlp_exports_total",
        kind="counter",
        help="Exports of all metrics by OTLP, by result; failed: the endpoint did not take them in "
        "time, or they were dropped because it had not taken earlier ones yet.",
        unit="exports",
        group="self",
        labels={"result": EXPORT_RESULTS},
        otel_name="kvscope.otlp.exports",
    ),
)
