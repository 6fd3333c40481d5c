"""`kvscope sidecar`: watches servers in other processes; runs without torch."""

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from kvscope.options.generated import with_options
from kvscope.options.gpu_devices import GpuOptions, polling
from kvscope.options.listen import SIDECAR_PORT, Address, PageAccess
from kvscope.options.otlp import (
    OtlpOptions,
    instance_of,
    outlet_of,
    served_as,
    tracing_of,
    until_end,
)
from kvscope.options.recording import RecordingOptions, flight_of, in_flight
from kvscope.output import configure_logging, fail
from kvscope.serving.protection import Protection
from kvscope.serving.stacks import show_stacks
from kvscope.serving.watch_list import WatchList
from kvscope_engine.option import option

if TYPE_CHECKING:
    from kvscope_exporter.configuration import SidecarConfig
    from kvscope_exporter.otlp.outlet import Served
    from kvscope_exporter.sidecar.sidecar import Sidecar
    from kvscope_exporter.tracing.session import Origin

logger = logging.getLogger("kvscope")


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarOptions:
    """The command line of a sidecar. What is None may be in its file."""

    watch: WatchList = WatchList()
    check: bool = option(
        False,
        "Only check the configuration: exit status 0, or 2 if it has an error.",
        flags=("--check",),
    )
    host: str | None = option(None, f"Address to listen on. Default: {Address().host}.", "HOST")
    port: int | None = option(
        None,
        f"Port to listen on; 0: any free one. Default: {SIDECAR_PORT}.",
        "PORT",
        least=0,
        most=65535,
    )
    address: str | None = option(
        None, "Address of this sidecar in /targets. Default: the Host of the request.", "HOST:PORT"
    )
    fleet: bool = option(
        False,
        "Also follow these servers as the replicas of one fleet, as `kvscope fleet` does those of "
        "many sidecars.",
        flags=("--fleet",),
    )
    recording: RecordingOptions = RecordingOptions()
    otlp: OtlpOptions = OtlpOptions()
    gpu: GpuOptions = GpuOptions()
    access: PageAccess = PageAccess()

    def place(self, wanted: "SidecarConfig") -> Address:
        """The address to listen on; a flag wins over the file."""
        listen = wanted.listen
        return Address(
            host=self.host or listen.host or Address().host,
            port=next((p for p in (self.port, listen.port) if p is not None), SIDECAR_PORT),
        )


_DEFAULT = SidecarOptions()


@with_options
def sidecar(options: SidecarOptions = _DEFAULT) -> None:
    """Serve metrics of servers that run in other processes.

    /scrape?target=NAME is the page of one server, /targets the list of servers for Prometheus'
    http_sd_configs. /metrics is the page of the only server, or the sidecar's own state where
    there are several.

    Example: kvscope sidecar --events llama=tcp://127.0.0.1:5557 --port 8010

    Example: kvscope sidecar --config /etc/kvscope/sidecar.yaml
    """
    configure_logging()
    show_stacks()
    options.otlp.check()
    wanted = options.watch.read()
    if options.check:
        place = options.watch.file or "options"
        typer.echo(f"{place}: {len(wanted.servers)} server(s), no errors")
        raise typer.Exit
    _run(options, wanted)


def _run(options: SidecarOptions, wanted: "SidecarConfig") -> None:
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
    from kvscope_exporter.web.limits import allow_files
    from kvscope_exporter.web.orders import gpu_router
    from kvscope_exporter.web.sidecar_app import finder, projections_of, sidecar_app

    place, given = options.place(wanted), options.watch
    address = options.address or wanted.listen.address
    if address is not None and not is_address(address):
        raise fail(f"--address {address!r}: expected HOST:PORT")
    protection = Protection(options.access, [place.host, *([] if address is None else [address])])
    flight = flight_of(options.recording)
    allow_files()  # a target takes up to ten
    reloads = Reloads(Clock())
    from_file = given.file is not None
    follows_fleet = options.fleet if wanted.fleet is None else wanted.fleet
    with (
        signals_end(reloads=from_file) as ending,
        hangups(wanted=from_file) as hangup,
        listening(place.host, place.port) as listener,
        polling(options.gpu) as poller,
        ExitStack() as last,
    ):
        port = listener.getsockname()[1]
        outlet = outlet_of(options.otlp, lambda: _served(watched, instance_of(port)))
        tracing = tracing_of(options.otlp, lambda name: _origin(watched, name))
        last.enter_context(until_end(tracing))  # so that it includes the last spans
        own = OwnFleet(Clock()) if follows_fleet else None
        collectors = (reloads if from_file else None, outlet, tracing, own)
        try:
            watched = Sidecar(
                wanted.servers,
                compat=given.sets(wanted),
                gpu=poller,
                further=[collector for collector in collectors if collector is not None],
                listener=None if tracing is None else tracing.listener,
                flight=flight,
                detail=given.detail,
            )
        except (EndpointError, ConfigurationError) as error:
            raise fail(error) from None

        if not from_file:
            _refuse_own_pages(watched)
        app = sidecar_app(watched, address, flight)
        app.include_router(plan_router())
        app.include_router(past_router(finder(watched)))
        if poller is not None:
            app.include_router(gpu_router(poller))
        if own is not None:
            app.include_router(fleet_router(own.fleet))
            last.enter_context(own.following(projections_of(watched)))
        tls = protection.tls_of_pages
        url = url_of(place.host, port, tls=tls is not None)
        protection.warn(place.host, url, has_api=False)
        watched.start()
        logger.info("watching %s; targets: %s/targets", ", ".join(watched.names()), url)
        try:
            with (
                until_end(outlet),
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
