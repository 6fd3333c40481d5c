"""`kvscope sidecar`: folds the events of engines in other processes; runs without torch."""

import logging
from typing import TYPE_CHECKING, Annotated

import typer

from exporter.cli.compat import DEFAULT_SETS, Compat, parse_compat
from exporter.cli.configuration import ListenConfig
from exporter.cli.endpoints import servers_of
from exporter.cli.gpu_devices import Gpu, GpuDevices, WatchedDevices, polling
from exporter.cli.output import configure_logging, fail
from exporter.cli.server_options import Host, Port

if TYPE_CHECKING:
    from exporter.gpu import GpuPoller

DEFAULT_PORT = 8010
"""Not 9400, where NVIDIA's DCGM exporter listens."""

_LISTEN = ListenConfig()
logger = logging.getLogger("kvscope")


def sidecar(
    events: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]ENDPOINT",
            help="Where an engine publishes its events: ipc:///DIRECTORY/NAME.sock, "
            "tcp://127.0.0.1:PORT, or ipc:///DIRECTORY/* for every socket that is or comes there "
            "(quote it). Repeat it for further engines; engines of one server have "
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
        ),
    ] = None,
    compat: Compat = DEFAULT_SETS,
    gpu: Gpu = True,
    gpu_devices: WatchedDevices = GpuDevices.VISIBLE,
) -> None:
    """Serve metrics of engines that run in other processes.

    The engines publish their events: kvscope serve --event-endpoint ENDPOINT.

    /scrape?target=NAME is the page of one server, /targets the list of servers for Prometheus'
    http_sd_configs. /metrics is the page of the only server, or the sidecar's own state where
    there are several.

    Example: kvscope sidecar --events llama=tcp://127.0.0.1:5557 --port 8010
    """
    configure_logging()
    sets = parse_compat(compat)
    try:
        servers = servers_of(events or ())
    except ValueError as error:
        raise fail(error) from None
    with polling(gpu, gpu_devices) as poller:
        _run(servers, sets, poller, host, port, address)


def _run(
    servers: dict[str, list[str]],
    compat: frozenset[str],
    poller: "GpuPoller | None",
    host: str,
    port: int,
    address: str | None,
) -> None:
    """Serve until a signal. Raises typer.Exit(2)."""
    from exporter.cli.listen import listening, url_of
    from exporter.cli.run import AppServer
    from exporter.cli.signals import signals_end
    from exporter.sidecar import Sidecar
    from exporter.web.gpu import gpu_router
    from exporter.web.sidecar_app import is_address, sidecar_app
    from kvscope_events.wire.errors import EndpointError

    if address is not None and not is_address(address):
        raise fail(f"--address {address!r}: expected HOST:PORT")
    with signals_end() as ending, listening(host, port) as listener:
        try:
            watched = Sidecar(servers, compat=compat, gpu=poller)
        except EndpointError as error:
            raise fail(f"--events: {error}") from None
        app = sidecar_app(watched, address)
        if poller is not None:
            app.include_router(gpu_router(poller))
        url = url_of(host, listener.getsockname()[1])
        watched.start()
        logger.info("watching %s; targets: %s/targets", ", ".join(servers), url)
        try:
            AppServer(app).run_until_end(listener, ending)
        finally:
            watched.stop()
    logger.info("stopped")
