"""Telemetry of an engine in this process: its bus, the exporter's page, the wire to a sidecar."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from fastapi import APIRouter

from kvscope.options.gpu_devices import polling
from kvscope.options.otlp import instance_of, outlet_of, served_as, tracing_of, until_end
from kvscope.options.recording import flight_of, in_flight
from kvscope.options.telemetry import TelemetryConfig
from kvscope.output import fail
from kvscope.plan.form import plan_router
from kvscope.replay.past import past_router
from kvscope_events.bus import EventBus, NullBus
from kvscope_exporter.clock import Clock
from kvscope_exporter.machine.gpu import GpuPoller
from kvscope_exporter.machine.machine import polled
from kvscope_exporter.targets.exporter import Exporter, in_process
from kvscope_exporter.web.answers import answers_router, only
from kvscope_exporter.web.compact import compact_router
from kvscope_exporter.web.landing import ListedServer, landing_router
from kvscope_exporter.web.live import live_router
from kvscope_exporter.web.metrics import metrics_router, no_metrics_router
from kvscope_exporter.web.projection import Projections, projection_router
from kvscope_exporter.web.recordings import recordings_router
from kvscope_exporter.web.requests import RequestCounts

AUTO = "auto"
"""Value of --event-endpoint for a socket in the run directory."""

logger = logging.getLogger("kvscope")


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """The observers of an engine in this process."""

    bus: EventBus | NullBus
    page: Exporter | None
    poller: GpuPoller | None
    makes_spans: bool = False
    """Spans of every request; without the caller's trace, one begins at the server."""
    metrics: APIRouter
    """The routes of page, answers and live view, or the reason why they are missing."""
    requests: RequestCounts | None = None
    """Counts the requests to the API; None: not shown."""


@contextmanager
def telemetry(config: TelemetryConfig, port: int) -> Iterator[Telemetry]:
    """All observers of the engine, running inside the block. Raises typer.Exit(2).

    port: the server's; names the socket in the run directory if --event-endpoint is `auto`, and the
    instance in a metrics store.
    """
    with ExitStack() as stack:
        bus = NullBus() if config.disable_log_stats else EventBus()
        if isinstance(bus, EventBus) and config.event_endpoint is not None:
            stack.enter_context(_publishing(bus, config.event_endpoint, f"serve-{port}"))
        if isinstance(bus, NullBus) or not config.exporter:
            router = no_metrics_router(config.reason_for_no_page)
            yield Telemetry(bus=bus, page=None, poller=None, metrics=router)
            return
        poller = stack.enter_context(polling(config.gpu))
        machine = polled(poller)
        compat = config.compat_sets
        instance = instance_of(port)
        tracing = tracing_of(config.otlp)
        flight = flight_of(config.recording)
        page = in_process(
            bus.subscribe(),
            recorder=None if flight is None else flight.recorder("serve", sorted(compat)),
            compat=compat,
            machine=machine,
            listeners=[] if tracing is None else [tracing.listener(instance)],
        )
        page.detail = config.detail
        outlet = outlet_of(config.otlp, lambda: [served_as(instance, page)])
        requests = RequestCounts(Clock()) if "vllm" in compat else None
        further = (requests, outlet, tracing)
        page.show(machine, [collector for collector in further if collector is not None])
        # These end last, so that they include the last values and spans.
        stack.enter_context(until_end(tracing))
        stack.enter_context(until_end(outlet))
        page.start()
        stack.callback(page.stop)
        if flight is not None:
            page.recorded_by(flight)
            stack.enter_context(in_flight(flight))
        find = only(page, lambda: [each.name for each in _listed(page)])
        router = APIRouter()
        router.include_router(
            landing_router(
                "kvscope",
                lambda: _listed(page),
                has_targets=False,
                has_recordings=flight is not None,
            )
        )
        router.include_router(metrics_router(page))
        router.include_router(compact_router(find))
        router.include_router(answers_router(find))
        acts: list[str] = []
        if config.acts:
            from kvscope.serving.acts import ACTS, acts_router

            acts = [*ACTS]
            router.include_router(acts_router())
        router.include_router(
            live_router(find, lambda: _listed(page), has_targets=False, acts=acts)
        )
        router.include_router(plan_router())
        router.include_router(past_router(find))
        router.include_router(projection_router(Projections(lambda: {"": page})))
        if flight is not None:
            router.include_router(recordings_router(flight, find))
        yield Telemetry(
            bus=bus,
            page=page,
            poller=poller,
            makes_spans=tracing is not None,
            metrics=router,
            requests=requests,
        )


def _listed(page: Exporter) -> list[ListedServer]:
    """The engine, by the name of its model once that is known."""
    names = [model_name for model_name, _ in page.server_kinds()]
    return [ListedServer(names[0] if names else "engine", page.presence, page)]


@contextmanager
def _publishing(bus: EventBus, endpoint: str, name: str) -> Iterator[None]:
    """Publishes the bus's batches inside the block. Raises typer.Exit(2)."""
    from kvscope_events.wire.endpoint import EndpointError
    from kvscope_events.wire.publisher import WirePublisher
    from kvscope_events.wire.run_directory import run_endpoint, settle_run_directory

    if endpoint == AUTO and (remark := settle_run_directory()):
        logger.warning("%s", remark)
    try:
        publisher = WirePublisher(bus, run_endpoint(name) if endpoint == AUTO else endpoint)
    except EndpointError as error:
        raise fail(f"--event-endpoint: {error}") from None
    publisher.start()
    logger.info("events: %s", publisher.address)
    try:
        yield
    finally:
        publisher.stop()
