"""Options of commands that listen: access to their ports, and TLS."""

from pathlib import Path
from typing import Annotated

import typer

ApiKey = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="Bearer token that the API requires. Visible in `ps`; prefer $KVSCOPE_SERVE_API_KEY "
        "or --api-key-file.",
    ),
]
ApiKeyFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File of accepted bearer tokens, one per line."),
]
MetricsKeyFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="File of bearer tokens for /metrics, one per line. Default: open."
    ),
]
WebConfigFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Web configuration file, as of Prometheus exporters, for /metrics: "
        "tls_server_config, basic_auth_users.",
    ),
]
AllowedHost = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HOST",
        help="Host name under which this may be asked when no key is required, besides addresses, "
        "its own name, and names that only a private network has. May be repeated.",
    ),
]
SslCertfile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Serve https with this certificate, in PEM."),
]
SslKeyfile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="TLS private key. Default: read from --ssl-certfile."),
]
