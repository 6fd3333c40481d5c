"""The page of `kvscope run`: served from threads, independent of the command."""

import logging
from collections.abc import Collection

from kvscope.plan.form import plan_router
from kvscope.replay.past import past_router
from kvscope.run.discovered import Sightings
from kvscope.serving.listen import url_of
from kvscope.serving.protection import Protection
from kvscope_events.vocabulary import ServerKind
from kvscope_exporter.catalogue.metric import Detail
from kvscope_exporter.configuration import ServerConfig, TlsConfig
from kvscope_exporter.machine.gpu import GpuPoller
from kvscope_exporter.recorder.flight import Flight
from kvscope_exporter.sidecar.sidecar import Sidecar
from kvscope_exporter.web.access import Access
from kvscope_exporter.web.http_server import HttpServer
from kvscope_exporter.web.orders import gpu_router
from kvscope_exporter.web.sidecar_app import finder, sidecar_app

logger = logging.getLogger("kvscope")


class Beside:
    """Watches all sockets of a folder from construction on.

    It is never stopped: its threads are daemons, and the exit code must not wait for them.
    """

    def __init__(
        self,
        kind: ServerKind,
        endpoint: str,
        host: str,
        port: int,
        compat: Collection[str],
        poller: GpuPoller | None,
        hint_seconds: float,
        *,
        protection: Protection,
        url: str | None = None,
        flight: Flight | None = None,
        detail: Detail = "full",
    ) -> None:
        """kind: of the server that the command starts, and its name on the page.

        url: of the command's own API server, whose page is read as well; None: no such server.
        flight: records the server.

        Raises OSError if the port is not available.
        """
        self.endpoint = endpoint
        # Nothing secret is sent there, and its certificate is not for loopback's name.
        tls = TlsConfig(verify=False) if (url or "").startswith("https:") else None
        server = ServerConfig(name=kind, kind=kind, events=(endpoint,), url=url, tls=tls)
        self._sidecar = Sidecar([server], compat=compat, gpu=poller, flight=flight, detail=detail)
        app = sidecar_app(self._sidecar, flight=flight)
        app.include_router(plan_router())
        app.include_router(past_router(finder(self._sidecar)))
        if poller is not None:
            app.include_router(gpu_router(poller))
        own_tls = protection.tls_of_pages
        self._server = HttpServer(Access(app, protection.access), host, port, tls=own_tls)
        self.url = url_of(host, self._server.port, tls=own_tls is not None)
        protection.warn(host, self.url, has_api=False)
        self._sightings = Sightings(self._sidecar.own, hint_seconds)
        self._failed = False
        self._sidecar.start()

    def look(self) -> None:
        """Called periodically: failures of ours are logged once, and the command continues."""
        if self._failed:
            return
        try:
            if not self._server.running or not self._sidecar.own.watching:
                raise RuntimeError("a thread has ended")
            self._sightings.look()
        except Exception as error:
            self._failed = True
            logger.error("metrics are no longer served (%s); the command keeps running", error)
