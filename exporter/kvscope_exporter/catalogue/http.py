"""HTTP: requests to `kvscope engine serve`, as prometheus-fastapi-instrumentator counts them.

vLLM and other servers use it, so dashboards query these names. Not exported by OTLP.
"""

from kvscope_exporter.catalogue.metric import Metric
from kvscope_exporter.paths import PATHS

HANDLERS = {row.path: row.counted for row in PATHS if row.counted is not None}
"""Counted routes, with their method. Any other request is `none`, as in the instrumentator;
operators' requests are not counted."""
NO_HANDLER = "none"
STATUSES = ("2xx", "3xx", "4xx", "5xx")

HTTP = (
    Metric(
        name="http_requests_total",
        kind="counter",
        help="Requests answered, by route, method and class of status.",
        notes="Requests of operators and probes are left out. A class that is rare for a route "
        "begins with its first request.",
        unit="requests",
        group="http",
        labels={
            "handler": (*HANDLERS, NO_HANDLER),
            "method": ("GET", "POST", NO_HANDLER),
            "status": STATUSES,
        },
    ),
    Metric(
        name="http_request_duration_seconds",
        kind="summary",
        help="Time from a request's header to the end of its answer, by route and method.",
        unit="seconds",
        group="http",
        labels={"handler": tuple(HANDLERS), "method": ("GET", "POST")},
    ),
)
