"""Runs the engine and its exporter in one process; the port answers while the model loads."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import typer
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from kvscope.options.listen import ListenConfig
from kvscope.options.telemetry import TelemetryConfig
from kvscope.output import fail
from kvscope.serving.listen import listening, metrics_listener, url_of
from kvscope.serving.loading import BackgroundCall, leave_at_once
from kvscope.serving.protection import Protection
from kvscope.serving.run import FORCED_SECONDS, AppServer
from kvscope.serving.signals import signals_end
from kvscope.serving.telemetry import Telemetry, telemetry
from kvscope_events.tenants import share_secret
from kvscope_exporter.extras import lacking
from kvscope_exporter.paths import HEALTH
from kvscope_exporter.web.access import Access
from kvscope_exporter.web.limits import allow_files
from kvscope_exporter.web.metrics import bare_app
from kvscope_exporter.web.orders import gpu_router
from kvscope_exporter.web.refusal import Refused
from kvscope_exporter.web.requests import CountedRequests

if TYPE_CHECKING:
    from kvscope_engine.build import Engine
    from kvscope_engine.config import EngineConfig
    from kvscope_engine.introduction import Introduction

ENGINE_FAILED = 1
"""Exit code for supervisors that restart a failed process."""
ANSWER_SECONDS = 5.0
"""Seconds for clients to read their errors once the engine has failed."""
STOP_SECONDS = 10.0
"""Seconds for the current step, at the end."""
RETRY_AFTER_SECONDS = 5
"""Value of Retry-After. Loading takes seconds to minutes; this suits both."""
logger = logging.getLogger("kvscope")

OnReady = Callable[[str, AppServer], None]
"""Called with the base URL once the API answers."""


def require_engine() -> None:
    """Raises typer.Exit(2) if only the exporter is installed."""
    if problem := lacking("the engine", "engine"):
        raise fail(problem)


def run_engine(
    config: "EngineConfig",
    listen: ListenConfig,
    observe: TelemetryConfig,
    on_ready: OnReady | None = None,
) -> None:
    """Listen, load, serve until a signal, drain, stop.

    Raises typer.Exit(2) after one clear line about the settings, the checkpoint or the ports.
    """
    if problem := share_secret():
        raise fail(problem)
    allow_files()
    host = listen.address.host
    protection = Protection(listen.access, (host, listen.metrics_host), listen.keys)
    if listen.metrics_port is None:
        protection.refuse_tls_of_pages()
    with ExitStack() as stack:
        ending = stack.enter_context(signals_end())
        listener = stack.enter_context(listening(host, listen.address.port))
        port = listener.getsockname()[1]
        observed = stack.enter_context(telemetry(observe, port))
        url = url_of(host, port, tls=protection.tls is not None)
        operators = Gate() if listen.metrics_port is not None else None
        metrics_url = f"{url}/metrics" if observed.page is not None else "none"
        if observed.page is not None and operators is not None:
            metrics_url = stack.enter_context(
                _metrics_port(observed, listen, protection, operators)
            )
        protection.warn(host, url, has_api=True)
        logger.info("loading %s at %s; metrics: %s", config.model.name, url, metrics_url)
        startup = _Startup(config, listen, protection, observed, operators, url, on_ready)
        try:
            startup.server.run_until_end(listener, ending)
        finally:
            stopped = startup.stop()
    startup.raise_failure()
    if startup.loading.running or not stopped:
        leave_at_once(ENGINE_FAILED if startup.engine_failed else 0)
    logger.info("stopped")
    if startup.engine_failed:
        raise typer.Exit(ENGINE_FAILED)


class Gate:
    """An ASGI app that answers with 503 instead of one that takes minutes to build.

    Once it is opened it passes requests on; until then `/health` reports `loading`.
    """

    def __init__(self) -> None:
        self._app: ASGIApp = _loading

    def open(self, app: ASGIApp) -> None:
        """Pass every request from now on to this app. The caller runs its lifespan."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


async def _loading(scope: Scope, receive: Receive, send: Send) -> None:
    await _refusal(Request(scope))(scope, receive, send)


def _refusal(request: Request) -> Response:
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
    if request.url.path == HEALTH.path:
        return JSONResponse({"status": "loading"}, 503, headers)
    message = f"the model is still loading: try again in {RETRY_AFTER_SECONDS} s"
    return Refused(503, message, headers).response


@contextmanager
def _metrics_port(
    observed: Telemetry, listen: ListenConfig, protection: Protection, operators: Gate
) -> Iterator[str]:
    """The page and operators' routes on a port of their own; its URL. Raises typer.Exit(2).

    operators: opened once there is an engine.
    """
    assert observed.page is not None
    assert listen.metrics_port is not None
    app = bare_app("kvscope metrics")
    app.include_router(observed.metrics)
    if observed.poller is not None:
        app.include_router(gpu_router(observed.poller))
    app.mount("/", operators)
    tls = protection.tls_of_pages
    port = metrics_listener(
        Access(app, protection.access), listen.metrics_host, listen.metrics_port, tls
    )
    url = f"{url_of(listen.metrics_host, port.port, tls=tls is not None)}/metrics"
    protection.warn(listen.metrics_host, url, has_api=False)
    try:
        yield url
    finally:
        port.stop()


class _Startup:
    """An app whose gate opens once the engine is built. Coroutines run on uvicorn's event loop."""

    def __init__(
        self,
        config: "EngineConfig",
        listen: ListenConfig,
        protection: Protection,
        observed: Telemetry,
        operators: Gate | None,
        url: str,
        on_ready: OnReady | None,
    ) -> None:
        self._url = url
        self._on_ready = on_ready
        self._gate = Gate()
        self._operators = operators
        self._engine: Engine | None = None
        self._failure: Exception | None = None
        self._exit_on_failure = listen.exit_on_failure
        self.engine_failed = False
        """Whether the process is to end because the engine has failed."""
        app = bare_app("kvscope")
        app.router.lifespan_context = self._lifespan
        app.include_router(observed.metrics)
        app.mount("/", self._gate)
        served: ASGIApp = Access(app, protection.access)
        if observed.requests is not None:
            served = CountedRequests(served, observed.requests)
        self.server = AppServer(served, listen.drain_seconds, tls=protection.tls)
        from kvscope_engine.introduction import Introduction

        introduction = Introduction(config, observed.bus)
        observed.bus.flush()  # the first page shows which engine is loading
        self.loading = BackgroundCall(lambda: _load(config, observed, introduction, operators))

    def stop(self) -> bool:
        """End the engine's thread, if there is one; returns whether it has ended."""
        if self._engine is None:
            return True
        seconds = FORCED_SECONDS if self.server.force_exit else STOP_SECONDS
        return self._engine.loop.shutdown(0.0, stop_seconds=seconds)

    def raise_failure(self) -> None:
        """Report in one line why the model could not be loaded; raise an unexpected error as is."""
        if self._failure is None:
            return
        from kvscope_engine.model.errors import CheckpointError
        from kvscope_engine.sizing import PoolSizeError

        if isinstance(self._failure, CheckpointError | PoolSizeError | ValueError):
            raise fail(self._failure) from None
        raise self._failure

    @asynccontextmanager
    async def _lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            opening = asyncio.create_task(self._open_when_loaded(stack))
            yield
            opening.cancel()
            await asyncio.wait([opening])

    async def _open_when_loaded(self, stack: AsyncExitStack) -> None:
        try:
            engine, app = await self.loading.result()
            if self.server.should_exit:
                return
            await stack.enter_async_context(app.router.lifespan_context(app))
        except Exception as error:
            self._failure = error
            self.server.should_exit = True
            return
        self._engine = engine
        if self._exit_on_failure:
            engine.loop.on_failure(self._leave)
        self.server.drain = engine.loop.shutdown
        engine.loop.start()
        self._gate.open(app)
        if self._operators is not None:
            from kvscope_engine.server.control import create_control_app

            self._operators.open(create_control_app(engine.dispatcher))
        logger.info("serving %s at %s/v1", engine.served.name, self._url)
        if self._on_ready is not None:
            self._on_ready(self._url, self.server)

    def _leave(self) -> None:
        """Called on the engine's thread, after every request has received its error."""
        logger.error("the process ends, since its engine has failed (--exit-on-failure)")
        self.engine_failed = True
        self.server.end_within(ANSWER_SECONDS)


def _load(
    config: "EngineConfig",
    observed: Telemetry,
    introduction: "Introduction",
    operators: Gate | None,
) -> tuple["Engine", FastAPI]:
    """Runs on the loading thread, since importing torch alone takes seconds."""
    from kvscope_engine.build import build_engine
    from kvscope_engine.server.app import ApiConfig, create_app
    from kvscope_engine.server.control import control_router

    engine = build_engine(config, observed.bus, introduction=introduction)
    gpu_routers = [] if observed.poller is None else [gpu_router(observed.poller)]
    app = create_app(
        engine.dispatcher,
        engine.tokenizer,
        engine.served,
        engine.scheduler,
        ApiConfig(begins_traces=observed.makes_spans),
        # If operators have a port of their own, their routes are there.
        [] if operators is not None else [control_router(engine.dispatcher), *gpu_routers],
    )
    return engine, app
