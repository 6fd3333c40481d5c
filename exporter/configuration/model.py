"""The content of a configuration file as types; the file is checked against them and no others."""

from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from kvscope_events.limits import MAX_LABEL
from kvscope_events.vocabulary import ServerKind

Kind = Literal["auto"] | ServerKind
KINDS = ("auto", *get_args(ServerKind))
MAX_SERVERS = 256
"""Each takes threads and sockets; more belong to several sidecars."""
MAX_STREAMS = 64
"""Data-parallel ranks of one server."""
MAX_LABELS = 32
MAX_TIMEOUT_SECONDS = 60.0

_Value = Annotated[str, Meta(max_length=MAX_LABEL)]
_Label = Annotated[str, Meta(pattern="^(?!__)[A-Za-z_][A-Za-z0-9_]{0,127}$")]
_Labels = Annotated[dict[_Label, _Value], Meta(max_length=MAX_LABELS)]


class FileValue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value that must not be written into the configuration, such as a token."""

    file: str
    """Path of a file with one line, read for every request, so that it may be renewed.

    Relative paths of a configuration begin at its file.
    """


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an https server is authenticated, and how it authenticates us."""

    ca: str | None = None
    """File of the authorities to trust, in PEM; None: those of the system."""
    cert: str | None = None
    """File of our certificate, in PEM, for a server that wants one."""
    key: str | None = None
    """File of its key; None: it is in the same file."""
    server_name: str | None = None
    """The name that the server's certificate must have; None: the URL's host."""
    verify: bool = True
    """False: any certificate is accepted, and anyone in between can read and change everything."""


class KvEventsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One engine's own stream of KV events."""

    endpoint: str
    """Its ZeroMQ PUB socket: tcp://HOST:PORT or ipc:///PATH."""
    replay: str | None = None
    """Its ZeroMQ ROUTER socket; None: lost batches cannot be had again."""
    engine: Annotated[str, Meta(min_length=1, max_length=MAX_LABEL)] = "0"
    """The data-parallel rank."""
    topic: _Value = ""
    """Topics that begin so; empty: all."""
    bind: bool = False
    """We listen and the engine connects, as vLLM does to an endpoint without a wildcard."""


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server: what Prometheus sees as one instance."""

    name: str
    """Its `instance` in Prometheus, and its name in /scrape?target=NAME."""
    kind: Kind = "auto"
    """auto: read from its page of metrics."""
    url: str | None = None
    """Base URL; None: its page is not read."""
    metrics_path: Annotated[str, Meta(pattern=r"^/[^\s?#]*$")] | None = None
    """Path of its page below `url`; None: as usual for the kind."""
    events: tuple[str, ...] = ()
    """Endpoints of the wire, folders of them (ipc:///DIRECTORY/*), recordings (file:///PATH)."""
    kv_events: (
        Annotated[tuple[KvEventsConfig, ...], Meta(max_length=MAX_STREAMS)] | Literal["auto"]
    ) = ()
    """Its own KV event streams; auto: it is asked where they are."""
    headers: dict[str, str | FileValue] = msgspec.field(default_factory=dict)
    """Sent with every request to `url`."""
    tls: TlsConfig | None = None
    """None: the system's authorities, no certificate of ours."""
    labels: Annotated[dict[_Label, _Value], Meta(max_length=MAX_LABELS)] = msgspec.field(
        default_factory=dict
    )
    """Labels that Prometheus adds to all of its series, by /targets."""
    model_name: Annotated[str, Meta(min_length=1, max_length=MAX_LABEL)] | None = None
    """The label `model_name` where the server does not say it; None: read from its page."""
    timeout: Annotated[float, Meta(gt=0, le=MAX_TIMEOUT_SECONDS)] = 5.0
    """Seconds for one page, all in all; below Prometheus' default of 10 for a scrape."""


class ListenSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the sidecar listens; read at start only. Options of the command win."""

    host: str | None = None
    port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    address: str | None = None
    """HOST:PORT of this sidecar in /targets; None: the one that Prometheus used."""


class SidecarConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole file."""

    servers: Annotated[tuple[ServerConfig, ...], Meta(min_length=1, max_length=MAX_SERVERS)]
    listen: ListenSettings = ListenSettings()
    compat: tuple[str, ...] | None = None
    """Other servers' metric names to serve as well; None: as the option --compat says."""
