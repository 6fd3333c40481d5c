"""Options of commands that listen: who may use their ports, and TLS."""

from pathlib import Path
from typing import Annotated

import typer

ApiKey = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="Bearer token that the API requires. Other users of this machine see it in the list "
        "of processes: KVSCOPE_API_KEY or --api-key-file keeps it out of there.",
    ),
]
ApiKeyFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="File with such tokens, one a line, each of which is admitted."
    ),
]
MetricsKeyFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="File with bearer tokens for /metrics, one a line. Default: open."
    ),
]
WebConfigFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Web configuration file of Prometheus' exporters for /metrics: tls_server_config, "
        "basic_auth_users.",
    ),
]
AllowedHost = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HOST",
        help="Name by which clients may call this server where a request that changes something "
        "needs no key; loopback and the server's address always count. May be repeated.",
    ),
]
SslCertfile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Serve https with this certificate, in PEM."),
]
SslKeyfile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Its key. Default: in the file of the certificate."),
]
