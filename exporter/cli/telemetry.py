"""What observes an engine in this process: its bus, the exporter's page, the wire to a sidecar."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from fastapi import APIRouter

from exporter.cli.gpu_devices import GpuDevices, polling
from exporter.cli.output import fail
from exporter.exporter import Exporter, in_process
from exporter.gpu import GpuPoller
from exporter.machine import Machine
from exporter.web.metrics import metrics_router, no_metrics_router
from kvscope_events.bus import EventBus, NullBus

AUTO = "auto"
"""Value of --event-endpoint for a socket in the run directory."""

_LOGGER = logging.getLogger("kvscope")


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    """Who is to see the engine's events."""

    compat: frozenset[str] = frozenset()
    """Other servers' names on the page."""
    exporter: bool = True
    """Serve a page from this process."""
    event_endpoint: str | None = None
    """ZeroMQ address that publishes the events; None: they stay in this process."""
    log_stats: bool = True
    """False: the engine emits nothing."""
    gpu: bool = True
    gpu_devices: GpuDevices = GpuDevices.VISIBLE

    def __post_init__(self) -> None:
        if not self.log_stats and self.event_endpoint is not None:
            raise ValueError(
                "--event-endpoint has nothing to publish with --disable-log-stats: drop one"
            )
        if self.log_stats and not self.exporter and self.event_endpoint is None:
            raise ValueError(
                "--no-exporter without --event-endpoint leaves nobody to see the events: add "
                "--event-endpoint, or give --disable-log-stats instead"
            )

    @property
    def serves_page(self) -> bool:
        return self.log_stats and self.exporter

    @property
    def reason_for_no_page(self) -> str:
        """For those who ask for it nevertheless."""
        if not self.log_stats:
            return "no metrics: this server runs with --disable-log-stats"
        return (
            "no metrics here: this server runs with --no-exporter and publishes its events at "
            f"{self.event_endpoint}; kvscope sidecar --events makes a page of them"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """What runs beside the engine."""

    bus: EventBus | NullBus
    page: Exporter | None
    poller: GpuPoller | None
    metrics: APIRouter
    """`/metrics`: the page, or why there is none."""


@contextmanager
def telemetry(config: TelemetryConfig, name: str) -> Iterator[Telemetry]:
    """Everything that observes, running inside the block. Raises typer.Exit(2).

    name: of the socket in the run directory, where --event-endpoint is `auto`.
    """
    with ExitStack() as stack:
        bus = EventBus() if config.log_stats else NullBus()
        if isinstance(bus, EventBus) and config.event_endpoint is not None:
            stack.enter_context(_publishing(bus, config.event_endpoint, name))
        if isinstance(bus, NullBus) or not config.exporter:
            router = no_metrics_router(config.reason_for_no_page)
            yield Telemetry(bus=bus, page=None, poller=None, metrics=router)
            return
        poller = stack.enter_context(polling(config.gpu, config.gpu_devices))
        machine = Machine(gpu=poller)
        page = in_process(bus.subscribe(), compat=config.compat, machine=machine)
        page.start()
        stack.callback(page.stop)
        yield Telemetry(bus=bus, page=page, poller=poller, metrics=metrics_router(page))


@contextmanager
def _publishing(bus: EventBus, endpoint: str, name: str) -> Iterator[None]:
    """The bus's batches on the wire. Raises typer.Exit(2)."""
    from kvscope_events.wire.errors import EndpointError
    from kvscope_events.wire.publisher import WirePublisher
    from kvscope_events.wire.run_directory import run_endpoint

    try:
        publisher = WirePublisher(bus, run_endpoint(name) if endpoint == AUTO else endpoint)
    except EndpointError as error:
        raise fail(f"--event-endpoint: {error}") from None
    publisher.start()
    _LOGGER.info("events: %s", publisher.address)
    try:
        yield
    finally:
        publisher.stop()
