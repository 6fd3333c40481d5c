"""Runs the engine with its exporter in one process: HTTP in front, metrics beside, a clean end."""

import asyncio
import logging
import math
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from types import FrameType
from typing import TYPE_CHECKING

import typer
import uvicorn

from kvscope_events.bus import EventBus, NullBus
from exporter.cli.gpu_devices import GpuDevices
from exporter.engine_info import EngineInfo
from exporter.exposition import Exporter
from exporter.gpu import GpuPoller, gpu_router
from exporter.http import MetricsServer, metrics_router, serve_metrics
from exporter.machine import Machine

if TYPE_CHECKING:
    from engine.build import Engine, EngineConfig

USAGE_ERROR = 2
FORCED_SECONDS = 1.0
"""After a second Ctrl-C: for aborted requests to say so."""
BACKLOG = 2048
STALLED_CLIENT_SECONDS = 5
"""After the drain: for clients to read what is left; then their connections are cut."""

logger = logging.getLogger("kvscope")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenConfig:
    """Where the server listens and how it ends."""

    host: str = "127.0.0.1"
    """Loopback by default: the API has no authentication unless a key is set."""
    port: int = 8000
    metrics_port: int | None = None
    """A further port for /metrics alone; None: only the API's."""
    metrics_host: str = "127.0.0.1"
    api_key: str | None = None
    drain_seconds: float = 30.0
    """How long SIGTERM waits for requests under way."""

    def __post_init__(self) -> None:
        if not 0 <= self.drain_seconds < math.inf:  # also refuses NaN
            raise ValueError(f"drain_seconds must be finite, got {self.drain_seconds}")
        if self.api_key == "":
            raise ValueError("api_key must not be empty: leave it out to serve without one")


def fail(message: str) -> typer.Exit:
    """One line on stderr; raise the result to leave with exit code 2."""
    typer.echo(f"kvscope: {message}", err=True)
    return typer.Exit(USAGE_ERROR)


def require_engine() -> None:
    """Raises typer.Exit(2) where only the exporter is installed."""
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        raise fail(f"the engine needs {missing[0]}: pip install 'kvscope[engine]'")


def configure_logging() -> None:
    """Our lines on stderr, one format."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
    )
    for chatty in ("httpx", "httpcore", "uvicorn.access", "uvicorn.error"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def run(
    config: "EngineConfig",
    listen: ListenConfig,
    *,
    compat: frozenset[str],
    collect: bool = True,
    gpu: bool = True,
    gpu_devices: GpuDevices = GpuDevices.VISIBLE,
    on_ready: Callable[[str, uvicorn.Server], None] | None = None,
) -> None:
    """Build, serve until a signal, drain, stop. `on_ready` gets the base URL just before.

    collect False: the null bus and no /metrics; gpu False: NVML is never touched. Raises
    typer.Exit(2) after one clear line for whatever is wrong with the settings, the checkpoint or
    the ports.
    """
    from engine.model.errors import CheckpointError
    from engine.server.app import ApiConfig, create_app
    from engine.sizing import PoolSizeError

    with ExitStack() as stack:
        listener = stack.enter_context(_listen(listen.host, listen.port))
        bus = EventBus() if collect else NullBus()
        try:
            engine = _build(config, bus)
        except (CheckpointError, PoolSizeError, ValueError) as error:
            raise fail(str(error)) from None
        routers = []
        metrics_url = "none"
        url = f"http://{_display(listen.host)}:{listener.getsockname()[1]}"
        if isinstance(bus, EventBus):
            poller = GpuPoller(environment=gpu_devices.environment()) if gpu else None
            exporter = Exporter(
                bus.subscribe(),
                _engine_info(config, engine),
                compat=compat,
                machine=Machine(gpu=poller),
            )
            exporter.start()
            stack.callback(exporter.stop)
            routers.append(metrics_router(exporter))
            if poller is not None:
                poller.start()
                stack.callback(poller.stop)
                routers.append(gpu_router(poller, listen.api_key))
            metrics_url = f"{url}/metrics"
            if listen.metrics_port is not None:
                metrics = _metrics_server(exporter, listen.metrics_host, listen.metrics_port)
                stack.callback(metrics.stop)
                metrics_url = f"http://{_display(listen.metrics_host)}:{metrics.port}/metrics"
        app = create_app(
            engine.dispatcher,
            engine.tokenizer,
            engine.served,
            engine.scheduler,
            ApiConfig(api_key=listen.api_key),
            routers,
        )
        server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="on",
                timeout_graceful_shutdown=math.ceil(listen.drain_seconds) + STALLED_CLIENT_SECONDS,
            ),
            engine.loop.shutdown,
            listen.drain_seconds,
        )
        engine.loop.start()
        stack.callback(engine.loop.shutdown, 0.0)
        logger.info("serving %s at %s/v1, metrics: %s", engine.served.name, url, metrics_url)
        if on_ready is not None:
            on_ready(url, server)
        with _signals_end(server):
            server.run(sockets=[listener])
    logger.info("stopped")


class _Server(uvicorn.Server):
    """Drains the engine while uvicorn waits for connections; what is cut short ends as `abort`."""

    def __init__(
        self, config: uvicorn.Config, drain: Callable[[float], None], drain_seconds: float
    ) -> None:
        super().__init__(config)
        self._drain = drain
        self._drain_seconds = drain_seconds

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logger.info("stopping: up to %g s for requests under way", self._drain_seconds)
        self._drain_aside(self._drain_seconds)
        await super().shutdown(sockets)
        if self.force_exit:  # a second Ctrl-C; uvicorn would leave all that follows out
            self._drain_aside(0.0)
            if self.server_state.tasks:
                await asyncio.wait(self.server_state.tasks, timeout=FORCED_SECONDS)
            await self.lifespan.shutdown()

    def _drain_aside(self, seconds: float) -> None:
        """In a thread of its own: asyncio would wait for those of its executor."""
        threading.Thread(target=self._drain, args=(seconds,), name="drain", daemon=True).start()


def _build(config: "EngineConfig", bus: EventBus | NullBus) -> "Engine":
    from engine.build import build_engine

    return build_engine(config, bus)


def _engine_info(config: "EngineConfig", engine: "Engine") -> EngineInfo:
    return EngineInfo(
        model_name=engine.served.name,
        max_model_len=engine.scheduler.max_model_len,
        enable_prefix_caching=config.cache.enable_prefix_caching,
        cache_dtype=engine.kv_dtype,
        gpu_memory_utilization=(
            config.cache.gpu_memory_utilization if engine.pool_size.measured else None
        ),
        prefix_caching_hash_algo="sha256",
    )


def _metrics_server(exporter: Exporter, host: str, port: int) -> MetricsServer:
    try:
        return serve_metrics(exporter, host, port)
    except (OSError, UnicodeError) as error:
        raise fail(
            f"cannot listen on {host}:{port} for metrics ({_reason(error)}): "
            "choose another --metrics-port or --metrics-host"
        ) from None


@contextmanager
def _listen(host: str, port: int) -> Iterator[socket.socket]:
    """The API's socket, taken before anything slow happens."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        raise fail(
            f"cannot listen on {host}:{port} ({_reason(error)}): choose another --port or --host"
        ) from None
    with listener:
        yield listener


@contextmanager
def _signals_end(server: uvicorn.Server) -> Iterator[None]:
    """Around uvicorn's own handlers: a signal before they are set counts too.

    uvicorn raises the signal that ended it once more after its shutdown; then this does nothing.
    """

    def end(number: int, frame: FrameType | None) -> None:
        server.should_exit = True

    previous = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _reason(error: OSError | UnicodeError) -> str:
    """UnicodeError: a host that can be no name, `a..b` say."""
    return str(getattr(error, "strerror", None) or "no such host")


def _display(host: str) -> str:
    return f"[{host}]" if ":" in host else host
