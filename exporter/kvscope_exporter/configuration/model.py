"""The content of a configuration file as types; the file is checked against them and no others."""

from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from kvscope_events.limits import MAX_LABEL
from kvscope_events.vocabulary import ServerKind

Kind = Literal["auto"] | ServerKind
KINDS = ("auto", *get_args(ServerKind))
FOLDER = "/*"
"""Suffix of an endpoint that stands for all sockets of a directory."""
MAX_SERVERS = 256
"""Each takes threads and sockets; for more, run several sidecars."""
MAX_STREAMS = 64
"""Data-parallel ranks of one server."""
MAX_LABELS = 32
MAX_TIMEOUT_SECONDS = 60.0

_Value = Annotated[str, Meta(max_length=MAX_LABEL)]
_Label = Annotated[str, Meta(pattern="^(?!__)[A-Za-z_][A-Za-z0-9_]{0,127}$")]


class FileValue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value that must not appear in the configuration, such as a token."""

    file: str
    """Path of a one-line file, read for every request so that it can be rotated.

    Relative paths start at the folder of the configuration file.
    """


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Authentication of an https server, and of us to it."""

    ca: str | None = None
    """PEM file of the trusted authorities; None: those of the system."""
    cert: str | None = None
    """PEM file of our certificate, for a server that requires one."""
    key: str | None = None
    """File of its key; None: the key is in the same file."""
    server_name: str | None = None
    """Expected name in the server's certificate; None: the URL's host."""
    verify: bool = True
    """False: accept any certificate, so that anyone in between can read and change everything."""


class KvEventsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One engine's own stream of KV events."""

    endpoint: str
    """Its ZeroMQ PUB socket: tcp://HOST:PORT or ipc:///PATH."""
    replay: str | None = None
    """Its ZeroMQ ROUTER socket; None: lost batches cannot be replayed."""
    engine: Annotated[str, Meta(min_length=1, max_length=MAX_LABEL)] = "0"
    """The data-parallel rank."""
    topic: _Value = ""
    """Prefix of the topics to read; empty: all."""
    bind: bool = False
    """Listen, and let the engine connect, as vLLM does for an endpoint without a wildcard."""


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server: what Prometheus sees as one instance."""

    name: str
    """Its `instance` in Prometheus, and its name in /scrape?target=NAME."""
    kind: Kind = "auto"
    """auto: detected from its metrics page."""
    url: str | None = None
    """Base URL; None: its page is not read."""
    metrics_path: Annotated[str, Meta(pattern=r"^/[^\s?#]*$")] | None = None
    """Path of its page below `url`; None: /metrics."""
    events: tuple[str, ...] = ()
    """Endpoints of the wire, folders of them (ipc:///DIRECTORY/*)."""
    kv_events: (
        Annotated[tuple[KvEventsConfig, ...], Meta(max_length=MAX_STREAMS)] | Literal["auto"]
    ) = ()
    """Its own KV event streams; auto: discovered from the server."""
    headers: dict[str, str | FileValue] = msgspec.field(default_factory=dict)
    """Sent with every request to `url`."""
    tls: TlsConfig | None = None
    """None: the system's authorities, no certificate of ours."""
    labels: Annotated[dict[_Label, _Value], Meta(max_length=MAX_LABELS)] = msgspec.field(
        default_factory=dict
    )
    """Labels that Prometheus adds to all its series, through /targets."""
    model_name: Annotated[str, Meta(min_length=1, max_length=MAX_LABEL)] | None = None
    """The label `model_name` if the server does not state it; None: read from its page."""
    timeout: Annotated[float, Meta(gt=0, le=MAX_TIMEOUT_SECONDS)] = 2.5
    """Total seconds for one page; well below the four that Prometheus waits for ours."""

    @property
    def page_url(self) -> str | None:
        """None: its page is not read."""
        return self.url and self.url.rstrip("/") + (self.metrics_path or "/metrics")


class ListenSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sidecar's listening address; read only at start. Command-line options take precedence."""

    host: str | None = None
    port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    address: str | None = None
    """HOST:PORT of this sidecar in /targets; None: the Host that Prometheus used."""


class SidecarConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole file."""

    servers: Annotated[tuple[ServerConfig, ...], Meta(min_length=1, max_length=MAX_SERVERS)]
    listen: ListenSettings = ListenSettings()
    compat: tuple[str, ...] | None = None
    """Other servers' metric names to serve as well; None: the value of --compat."""
    fleet: bool | None = None
    """Follow all servers as one fleet, read only at start; None: the value of --fleet."""
