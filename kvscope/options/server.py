"""Options of commands that listen: their address, how they end, and where their events go."""

from typing import Annotated

import typer

Host = Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")]
Port = Annotated[
    int,
    typer.Option(
        metavar="PORT",
        min=0,
        max=65535,
        help="Port to listen on; 0: any free one.",
    ),
]
DrainSeconds = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=0,
        help="Seconds to finish requests in flight after SIGTERM or Ctrl-C.",
    ),
]
ExitOnFailure = Annotated[
    bool,
    typer.Option(
        help="Exit with status 1 after an engine failure, so that a supervisor restarts it. By "
        "default the process stays up and /health returns 503.",
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        metavar="PORT",
        min=0,
        max=65535,
        help="Serve /metrics on this port as well; 0: any free one.",
    ),
]
MetricsHost = Annotated[str, typer.Option(metavar="HOST", help="Address of --metrics-port.")]
EventEndpoint = Annotated[
    str | None,
    typer.Option(
        metavar="ENDPOINT",
        help="Publish all events for kvscope sidecar: ipc:///DIRECTORY/NAME.sock, "
        "tcp://127.0.0.1:PORT, or auto: serve-PORT.sock in KVSCOPE_RUN_DIR.",
    ),
]
WithExporter = Annotated[
    bool,
    typer.Option(
        help="Serve /metrics from this process. --no-exporter leaves that to kvscope sidecar.",
    ),
]
DisableLogStats = Annotated[
    bool,
    typer.Option(
        "--disable-log-stats",
        help="Emit no events and serve no /metrics.",
    ),
]
