"""The sidecar's app: its own page, a page for each server, and the list of them for Prometheus.

Follows the multi-target convention of redis_exporter and snmp_exporter, so that `instance` stays
one server: Prometheus reads `/targets` (HTTP service discovery) and scrapes `/scrape?target=NAME`.
"""

from collections.abc import Callable, Mapping

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from kvscope_exporter.fetch.address import is_address
from kvscope_exporter.paths import HEALTH, METRICS, SCRAPE, TARGETS
from kvscope_exporter.recorder.flight import Flight
from kvscope_exporter.sidecar.sidecar import Sidecar
from kvscope_exporter.targets.exporter import Exporter
from kvscope_exporter.web.answers import AnswerSource, NoServerError, answers_router
from kvscope_exporter.web.compact import compact_router
from kvscope_exporter.web.landing import ListedServer, landing_router
from kvscope_exporter.web.live import live_router
from kvscope_exporter.web.metrics import METHODS, bare_app, page_response
from kvscope_exporter.web.orders import retire_router
from kvscope_exporter.web.projection import Projections, projection_router
from kvscope_exporter.web.recordings import recordings_router


def sidecar_app(
    pages: Sidecar, address: str | None = None, flight: Flight | None = None
) -> FastAPI:
    """`/`, `/metrics`, `/metrics/compact`, `/scrape`, `/targets`, `/live`, `/api/...`, `/health`.

    address: the host:port that `/targets` names; None: that of the request's Host header. flight:
    records the servers.
    """
    find = finder(pages)
    app = bare_app("kvscope sidecar")
    app.include_router(
        landing_router(
            "kvscope sidecar",
            lambda: _listed(pages),
            has_targets=True,
            has_recordings=flight is not None,
        )
    )
    app.include_router(_own_router(pages))
    app.include_router(_scrape_router(pages))
    app.include_router(compact_router(find))
    app.include_router(answers_router(find))
    app.include_router(
        live_router(
            find,
            lambda: _listed(pages),
            has_targets=True,
        )
    )
    app.include_router(retire_router(find))
    app.include_router(projection_router(projections_of(pages)))
    app.include_router(_targets_router(pages, address))
    if flight is not None:
        app.include_router(recordings_router(flight, find))

    @app.api_route(HEALTH.path, methods=METHODS)
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    return app


def finder(pages: Sidecar) -> Callable[[str], Exporter]:
    """Finds a server by its name; an empty one stands for the only one. It raises NoServerError."""
    return lambda name: _server(pages, name or _only(pages))


def projections_of(pages: Sidecar) -> Projections:
    """The projections of all servers, for a fleet process."""

    def servers() -> dict[str, AnswerSource]:
        found = [(name, pages.server(name)) for name in pages.names()]
        return {name: server for name, server in found if server is not None}

    return Projections(servers)


def _listed(pages: Sidecar) -> list[ListedServer]:
    found = [(name, pages.server(name)) for name in pages.names()]
    return [
        ListedServer(name, server.presence, server) for name, server in found if server is not None
    ]


def _own_router(pages: Sidecar) -> APIRouter:
    router = APIRouter()

    @router.api_route(METRICS.path, methods=METHODS)
    def metrics(request: Request) -> Response:  # on a worker thread
        return page_response(pages.own, request)

    return router


def _scrape_router(pages: Sidecar) -> APIRouter:
    router = APIRouter()

    @router.api_route(SCRAPE.path, methods=METHODS)
    def scrape(request: Request, target: str = "") -> Response:  # on a worker thread
        try:
            return page_response(_server(pages, target), request)
        except NoServerError as error:
            return PlainTextResponse(f"{error}\n", error.status)

    return router


def _server(pages: Sidecar, name: str) -> Exporter:
    """Raises NoServerError."""
    known = ", ".join(pages.names()) or "none"
    if not name:
        raise NoServerError(400, f"name a server: ?target=NAME, one of: {known}")
    server = pages.server(name)
    if server is None:
        raise NoServerError(404, f"no server {name!r} here; known: {known}")
    return server


def _only(pages: Sidecar) -> str:
    """The name of the only server; empty if there are several, or none."""
    names = pages.names()
    return names[0] if len(names) == 1 else ""


def _targets_router(pages: Sidecar, address: str | None) -> APIRouter:
    router = APIRouter()

    @router.api_route(TARGETS.path, methods=METHODS)
    async def targets(request: Request) -> Response:
        here = address or request.headers.get("host", "")
        if not is_address(here):
            return PlainTextResponse(f"the Host header {here!r} is not HOST[:PORT]\n", 400)
        return JSONResponse([_target(here, name, pages.labels(name)) for name in pages.names()])

    return router


def _target(address: str, name: str, labels: Mapping[str, str]) -> dict[str, object]:
    """One entry in the format of Prometheus' http_sd_config."""
    own = {"__metrics_path__": SCRAPE.path, "__param_target": name, "instance": name}
    return {"targets": [address], "labels": {**labels, **own}}
