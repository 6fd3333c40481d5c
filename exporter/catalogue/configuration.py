"""A sidecar's configuration file, with names like Prometheus' families for its own."""

from exporter.catalogue.metric import Kind, Labels, Metric

RELOAD_RESULTS = ("success", "failure")


def _configuration(
    name: str, help: str, *, kind: Kind = "gauge", unit: str = "", labels: Labels | None = None
) -> Metric:
    return Metric(
        name=f"kvscope_config_{name}",
        kind=kind,
        help=help,
        unit=unit,
        group="self",
        labels=labels or {},
        otel_name=f"kvscope.config.{name.removesuffix('_total')}",
    )


CONFIGURATION = (
    _configuration(
        "last_reload_successful",
        "Whether the configuration file was usable when it was last read; 0: the previous one is "
        "in use.",
    ),
    _configuration(
        "last_reload_success_timestamp_seconds",
        "Unix time when the configuration in use was read.",
        unit="seconds",
    ),
    _configuration(
        "reloads_total",
        "Times that the configuration file was read again, on SIGHUP, by result.",
        kind="counter",
        unit="reloads",
        labels={"result": RELOAD_RESULTS},
    ),
)
