"""`kvscope sidecar`: folds the events of engines in other processes; runs without torch."""

import logging
from typing import Annotated

import typer

from exporter.cli.compat import DEFAULT_SETS, Compat, parse_compat
from exporter.cli.configuration import ListenConfig
from exporter.cli.endpoints import servers_of
from exporter.cli.gpu_devices import Gpu, GpuDevices, WatchedDevices, polling
from exporter.cli.output import configure_logging, fail
from exporter.cli.server_options import Host, Port

DEFAULT_PORT = 8010
"""Not 9400, the first that comes to mind: NVIDIA's DCGM exporter listens there."""

_LISTEN = ListenConfig()
_LOGGER = logging.getLogger("kvscope")


def sidecar(
    events: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]ENDPOINT",
            help="Where an engine publishes its events: ipc:///DIRECTORY/NAME.sock or "
            "tcp://127.0.0.1:PORT. Repeat it for further engines; engines of one server have "
            "the same NAME. Default NAME: the socket's file name, or host and port.",
        ),
    ] = None,
    host: Host = _LISTEN.host,
    port: Port = DEFAULT_PORT,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Address of this sidecar in /targets. Default: the one Prometheus used.",
            rich_help_panel="Server",
        ),
    ] = None,
    compat: Compat = DEFAULT_SETS,
    gpu: Gpu = True,
    gpu_devices: WatchedDevices = GpuDevices.VISIBLE,
) -> None:
    """Serve metrics of engines that publish their events from other processes.

    /scrape?target=NAME is the page of one server, /targets the list of servers for Prometheus'
    http_sd_configs. /metrics is the page of the only server, or the sidecar's own state where
    there are several.

    Example: kvscope sidecar --events llama=tcp://127.0.0.1:5557 --port 8010
    """
    from exporter.cli.listen import listening, url_of
    from exporter.cli.run import AppServer
    from exporter.sidecar import Sidecar
    from exporter.web.gpu import gpu_router
    from exporter.web.sidecar_app import is_address, sidecar_app
    from kvscope_events.wire.errors import EndpointError

    configure_logging()
    sets = parse_compat(compat)
    try:
        servers = servers_of(events or ())
    except ValueError as error:
        raise fail(error) from None
    if address is not None and not is_address(address):
        raise fail(f"--address {address!r}: expected HOST:PORT")
    with listening(host, port) as listener, polling(gpu, gpu_devices) as poller:
        try:
            watched = Sidecar(servers, compat=sets, gpu=poller)
        except EndpointError as error:
            raise fail(f"--events: {error}") from None
        app = sidecar_app(watched, address)
        if poller is not None:
            app.include_router(gpu_router(poller))
        watched.start()
        url = url_of(host, listener.getsockname()[1])
        _LOGGER.info("watching %s; targets: %s/targets", ", ".join(servers), url)
        try:
            AppServer(app).run_until_signal(listener)
        finally:
            watched.stop()
    _LOGGER.info("stopped")
