"""A sidecar's configuration file, with a name like Prometheus' family for its own."""

from exporter.catalogue.metric import Metric

CONFIGURATION = (
    Metric(
        name="kvscope_config_last_reload_successful",
        kind="gauge",
        help="Whether the configuration file was usable when it was last read; 0: the previous "
        "one is in use.",
        unit="",
        group="self",
        labels={},
        otel_name="kvscope.config.last_reload_successful",
    ),
)
