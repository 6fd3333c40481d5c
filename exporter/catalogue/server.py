"""The watched server as a whole: one page is one server."""

from typing import Literal, get_args

from exporter.catalogue.metric import Metric

ServerState = Literal["expected", "loading", "ready", "gone"]
SERVER_STATES: tuple[ServerState, ...] = get_args(ServerState)

SERVER = (
    Metric(
        name="kvscope_server_state",
        kind="gauge",
        help="State of the watched server, one of which is 1: expected (not heard yet), loading "
        "(part of it is not ready), ready, or gone (was heard, and is silent).",
        unit="",
        group="server",
        labels={"state": SERVER_STATES},
        otel_name="kvscope.server.state",
    ),
    Metric(
        name="kvscope_server_start_time_seconds",
        kind="gauge",
        help="Unix time when the watched server's process began, by its own page; a sidecar's "
        "process_start_time_seconds is its own.",
        unit="seconds",
        group="server",
        otel_name="kvscope.server.start_time",
        aliases=("process_start_time_seconds",),
    ),
)
