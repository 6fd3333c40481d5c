"""Options of commands that listen: where, how they end, and who sees their events."""

from typing import Annotated

import typer

_SERVER = "Server"
_METRICS = "Metrics"

Host = Annotated[str, typer.Option(help="Address to listen on.", rich_help_panel=_SERVER)]
Port = Annotated[
    int,
    typer.Option(
        min=0, max=65535, help="Port to listen on; 0: any free one.", rich_help_panel=_SERVER
    ),
]
ApiKey = Annotated[
    str | None, typer.Option(help="Bearer token that the API requires.", rich_help_panel=_SERVER)
]
DrainSeconds = Annotated[
    float,
    typer.Option(
        min=0,
        help="Seconds that requests under way may still take after SIGTERM or Ctrl-C.",
        rich_help_panel=_SERVER,
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="Serve /metrics on this port as well; 0: any free one.",
        rich_help_panel=_METRICS,
    ),
]
MetricsHost = Annotated[
    str, typer.Option(help="Address of --metrics-port.", rich_help_panel=_METRICS)
]
EventEndpoint = Annotated[
    str | None,
    typer.Option(
        metavar="ENDPOINT",
        help="Publish all events for kvscope sidecar: ipc:///DIRECTORY/NAME.sock, "
        "tcp://127.0.0.1:PORT, or auto: serve-PORT.sock in KVSCOPE_RUN_DIR.",
        rich_help_panel=_METRICS,
    ),
]
WithExporter = Annotated[
    bool,
    typer.Option(
        help="Serve /metrics from this process. --no-exporter leaves that to kvscope sidecar.",
        rich_help_panel=_METRICS,
    ),
]
DisableLogStats = Annotated[
    bool,
    typer.Option(
        "--disable-log-stats",
        help="Emit no events and serve no /metrics.",
        rich_help_panel=_METRICS,
    ),
]
