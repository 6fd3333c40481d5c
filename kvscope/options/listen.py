"""Options of commands that listen: their addresses, access to their ports, TLS, how they end."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from kvscope_engine.option import option

SIDECAR_PORT = 8010
"""The page of `kvscope sidecar` and `run`. Not 9400, where NVIDIA's DCGM exporter listens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeys:
    """Keys of the API; those of the file are read once, at the start."""

    PANEL: ClassVar[str] = "Access and TLS"
    api_key: str | None = option(
        None,
        "Bearer token that the API requires. Visible in `ps`; prefer $KVSCOPE_ENGINE_SERVE_API_KEY "
        "or --api-key-file.",
        "KEY",
        is_secret=True,
    )
    api_key_file: Path | None = option(
        None, "File of accepted bearer tokens, one per line.", "FILE"
    )

    def __post_init__(self) -> None:
        if self.api_key is not None:
            from kvscope_exporter.web.access.keys import check_key

            try:
                check_key(self.api_key)
            except ValueError as error:
                raise ValueError(f"api_key {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAccess:
    """Access to pages of metrics, and TLS of all ports; files are read once, at the start."""

    PANEL: ClassVar[str] = "Access and TLS"
    metrics_key_file: Path | None = option(
        None, "File of bearer tokens for /metrics, one per line. Default: open.", "FILE"
    )
    web_config_file: Path | None = option(
        None,
        "Web configuration file, as of Prometheus exporters, for /metrics: tls_server_config, "
        "basic_auth_users.",
        "FILE",
    )
    allowed_hosts: tuple[str, ...] = option(
        (),
        "Host name under which this may be asked when no key is required, besides addresses, its "
        "own name, and names that only a private network has. May be repeated.",
        "HOST",
        flags=("--allowed-host",),
    )
    ssl_certfile: Path | None = option(None, "Serve https with this certificate, in PEM.", "FILE")
    ssl_keyfile: Path | None = option(
        None, "TLS private key. Default: read from --ssl-certfile.", "FILE"
    )

    def __post_init__(self) -> None:
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise ValueError("--ssl-keyfile without --ssl-certfile: give both, or none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address that a command listens on."""

    host: str = option("127.0.0.1", "Address to listen on.", "HOST")
    """Loopback by default: without a key anyone who reaches the port may ask."""
    port: int = option(8000, "Port to listen on; 0: any free one.", "PORT", least=0, most=65535)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenConfig:
    """The addresses of a server with an API, access to them, and how it ends."""

    PANEL: ClassVar[str] = "Listening"
    address: Address = Address()
    keys: ApiKeys = ApiKeys()
    drain_seconds: float = option(
        30.0, "Seconds to finish requests in flight after SIGTERM or Ctrl-C.", "SECONDS", least=0
    )
    exit_on_failure: bool = option(
        False,
        "Exit with status 1 after an engine failure, so that a supervisor restarts it. By default "
        "the process stays up and /health returns 503.",
    )
    metrics_port: int | None = option(
        None, "Serve /metrics on this port as well; 0: any free one.", "PORT", least=0, most=65535
    )
    """It has operators' routes as well, which the main port then has not."""
    metrics_host: str = option("127.0.0.1", "Address of --metrics-port.", "HOST")
    access: PageAccess = PageAccess()

    def __post_init__(self) -> None:
        if not 0 <= self.drain_seconds < math.inf:  # also refuses NaN
            raise ValueError(f"drain_seconds must be finite, got {self.drain_seconds}")
