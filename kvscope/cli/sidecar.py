"""`kvscope sidecar`: watches servers in other processes; runs without torch."""

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvscope.options import protection as options
from kvscope.options.compat import HELP as COMPAT_HELP
from kvscope.options.compat import NO_SETS
from kvscope.options.configuration import SIDECAR_PORT, ListenConfig
from kvscope.options.gpu_devices import Gpu, GpuDevices, WatchedDevices, polling
from kvscope.options.otlp import (
    OtlpEndpoint,
    chosen_otlp,
    exporting,
    instance_of,
    outlet_of,
    served_as,
)
from kvscope.options.recording import (
    DEFAULT_BYTES,
    DEFAULT_KEEP,
    Keep,
    KeepBytes,
    RecordDir,
    RecordingConfig,
    flight_of,
    in_flight,
    recording_of,
)
from kvscope.options.tracing import (
    OtlpTracesEndpoint,
    chosen_traces,
    tracing_of,
    tracing_until_end,
)
from kvscope.output import configure_logging, fail
from kvscope.serving.protection import Protection, protection_of_metrics
from kvscope.serving.stacks import show_stacks
from kvscope.serving.watch_list import WatchList

if TYPE_CHECKING:
    from kvscope_exporter.configuration import SidecarConfig
    from kvscope_exporter.machine.gpu import GpuPoller
    from kvscope_exporter.otlp.outlet import Served
    from kvscope_exporter.otlp.settings import OtlpConfig
    from kvscope_exporter.sidecar.sidecar import Sidecar
    from kvscope_exporter.tracing.session import Origin

_LISTEN = ListenConfig()
logger = logging.getLogger("kvscope")


def sidecar(
    events: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]ENDPOINT",
            help="Endpoint on which an engine publishes its events: ipc:///DIRECTORY/NAME.sock, "
            "tcp://127.0.0.1:PORT, ipc:///DIRECTORY/* for every socket in a folder, also those "
            "that appear later (quote it). May be repeated; endpoints of one server have the same "
            "NAME. Default NAME: the socket's name, or host and port.",
        ),
    ] = None,
    url: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]URL",
            help="Base URL of a server whose own metrics page is read and served under kvscope's "
            "names: http://HOST:PORT of vLLM, SGLang and others. May be repeated.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="YAML file with the servers and how to reach them; SIGHUP reloads it. Instead of "
            "--events and --url.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Only check the configuration: exit status 0, or 2 if it has an error."
        ),
    ] = False,
    host: Annotated[
        str | None,
        typer.Option(metavar="HOST", help=f"Address to listen on. Default: {_LISTEN.host}."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=0,
            max=65535,
            help=f"Port to listen on; 0: any free one. Default: {SIDECAR_PORT}.",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Address of this sidecar in /targets. Default: the Host of the request.",
        ),
    ] = None,
    compat: Annotated[
        str | None, typer.Option(metavar="SETS", help=f"{COMPAT_HELP} Default: {NO_SETS}.")
    ] = None,
    fleet: Annotated[
        bool,
        typer.Option(
            "--fleet",
            help="Also follow these servers as the replicas of one fleet, as `kvscope fleet` does "
            "those of many sidecars.",
        ),
    ] = False,
    keep: Keep = DEFAULT_KEEP,
    keep_bytes: KeepBytes = DEFAULT_BYTES,
    record_dir: RecordDir = None,
    otlp_endpoint: OtlpEndpoint = None,
    otlp_traces_endpoint: OtlpTracesEndpoint = None,
    gpu: Gpu = True,
    gpu_devices: WatchedDevices = GpuDevices.VISIBLE,
    metrics_key_file: options.MetricsKeyFile = None,
    web_config_file: options.WebConfigFile = None,
    allowed_host: options.AllowedHost = None,
    ssl_certfile: options.SslCertfile = None,
    ssl_keyfile: options.SslKeyfile = None,
) -> None:
    """Serve metrics of servers that run in other processes.

    /scrape?target=NAME is the page of one server, /targets the list of servers for Prometheus'
    http_sd_configs. /metrics is the page of the only server, or the sidecar's own state where
    there are several.

    Example: kvscope sidecar --events llama=tcp://127.0.0.1:5557 --port 8010

    Example: kvscope sidecar --config /etc/kvscope/sidecar.yaml
    """
    configure_logging()
    show_stacks()
    otlp = chosen_otlp(otlp_endpoint)
    traces = chosen_traces(otlp_traces_endpoint)
    given = WatchList(config, tuple(events or ()), tuple(url or ()), compat)
    wanted = given.read()
    if check:
        typer.echo(f"{config or 'options'}: {len(wanted.servers)} server(s), no errors")
        raise typer.Exit
    listen = wanted.listen
    where = _Where(
        host=host or listen.host or _LISTEN.host,
        port=next((p for p in (port, listen.port) if p is not None), SIDECAR_PORT),
        address=address or listen.address,
        fleet=fleet if wanted.fleet is None else wanted.fleet,
    )
    names = [*(allowed_host or ()), *([] if where.address is None else [where.address])]
    protection = protection_of_metrics(
        where.host, metrics_key_file, web_config_file, names, ssl_certfile, ssl_keyfile
    )
    recording = recording_of(keep, keep_bytes, record_dir)
    with polling(gpu, gpu_devices) as poller:
        _run(given, wanted, where, protection, poller, otlp, traces, recording)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Where:
    host: str
    port: int
    address: str | None
    fleet: bool


def _run(
    given: WatchList,
    wanted: "SidecarConfig",
    where: _Where,
    protection: Protection,
    poller: "GpuPoller | None",
    otlp: "OtlpConfig | None",
    traces: "OtlpConfig | None",
    recording: RecordingConfig | None,
) -> None:
    """Serve until a signal. Raises typer.Exit(2)."""
    from kvscope.plan.form import plan_router
    from kvscope.replay.past import past_router
    from kvscope.serving.listen import listening, url_of
    from kvscope.serving.reloading import hangups, reloading
    from kvscope.serving.run import AppServer
    from kvscope.serving.signals import signals_end
    from kvscope_events.wire.endpoint import EndpointError
    from kvscope_exporter.clock import Clock
    from kvscope_exporter.configuration import ConfigurationError
    from kvscope_exporter.fetch.address import is_address
    from kvscope_exporter.fleet.own import OwnFleet
    from kvscope_exporter.sidecar.sidecar import Reloads, Sidecar
    from kvscope_exporter.web.access import Access
    from kvscope_exporter.web.fleet import fleet_router
    from kvscope_exporter.web.gpu import gpu_router
    from kvscope_exporter.web.limits import allow_files
    from kvscope_exporter.web.sidecar_app import finder, projections_of, sidecar_app

    if where.address is not None and not is_address(where.address):
        raise fail(f"--address {where.address!r}: expected HOST:PORT")
    allow_files()  # a target takes up to ten
    reloads = Reloads(Clock())
    sets = given.sets(wanted)
    from_file = given.file is not None
    with (
        signals_end(reloads=from_file) as ending,
        hangups(wanted=from_file) as hangup,
        listening(where.host, where.port) as listener,
        ExitStack() as last,
    ):
        port = listener.getsockname()[1]
        outlet = outlet_of(otlp, lambda: _served(watched, instance_of(port)))
        tracing = tracing_of(traces, lambda name: _origin(watched, name))
        last.enter_context(tracing_until_end(tracing))  # so that it includes the last spans
        own = OwnFleet(Clock()) if where.fleet else None
        flight = flight_of(recording)
        collectors = (reloads if from_file else None, outlet, tracing, own)
        try:
            watched = Sidecar(
                wanted.servers,
                compat=sets,
                gpu=poller,
                further=[collector for collector in collectors if collector is not None],
                listener=None if tracing is None else tracing.listener,
                flight=flight,
            )
        except (EndpointError, ConfigurationError) as error:
            raise fail(error) from None

        if not from_file:
            _refuse_own_pages(watched)
        app = sidecar_app(watched, where.address, flight)
        app.include_router(plan_router())
        app.include_router(past_router(finder(watched)))
        if poller is not None:
            app.include_router(gpu_router(poller))
        if own is not None:
            app.include_router(fleet_router(own.fleet))
            last.enter_context(own.following(projections_of(watched)))
        tls = protection.tls_of_pages
        url = url_of(where.host, port, tls=tls is not None)
        protection.warn(where.host, url, has_api=False)
        watched.start()
        logger.info("watching %s; targets: %s/targets", ", ".join(watched.names()), url)
        try:
            with (
                exporting(outlet),
                in_flight(flight),
                reloading(hangup, lambda: given.reload(watched, reloads, wanted)),
            ):
                server = AppServer(Access(app, protection.access), tls=tls)
                server.run_until_end(listener, ending)
        finally:
            watched.stop()
    logger.info("stopped")


def _refuse_own_pages(watched: "Sidecar") -> None:
    """A kvscope is scraped, not watched. Raises typer.Exit(2) if a URL leads to one now."""
    from kvscope_exporter.scrape.detect import OWN_PAGE, OWN_PAGE_REMEDY

    for name in watched.names():
        server = watched.server(name)
        for reader in () if server is None else server.readers:
            if not reader.read().is_up and reader.is_of_kvscope:
                raise fail(f"--url {reader.url}: {OWN_PAGE}: {OWN_PAGE_REMEDY}")


def _served(watched: "Sidecar", instance: str) -> "list[Served]":
    """Every server under its own name, and the sidecar's state if it has a page of its own."""
    servers = [
        served_as(name, exporter, watched.labels(name))
        for name in watched.names()
        if (exporter := watched.server(name)) is not None
    ]
    if len(servers) == 1:
        return servers
    return [*servers, served_as(instance, watched.own)]


def _origin(watched: "Sidecar", name: str) -> "Origin":
    """The origin of a server's spans."""
    from kvscope_exporter.tracing.session import Origin

    return Origin(labels=watched.labels(name), is_only=len(watched.names()) == 1)
