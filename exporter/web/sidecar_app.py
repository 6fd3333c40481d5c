"""The sidecar's app: its own page, a page for each server, and the list of them for Prometheus.

Follows the multi-target convention of redis_exporter and snmp_exporter, so that `instance` stays
one server: Prometheus reads `/targets` (HTTP service discovery) and scrapes `/scrape?target=NAME`.
"""

from collections.abc import Mapping
from typing import Protocol

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from exporter.web.address import is_address
from exporter.web.metrics import METHODS, PATH, Exposition, bare_app, page_response


class Pages(Protocol):
    """The servers that a sidecar watches, and their pages; both may change at any time."""

    @property
    def own(self) -> Exposition:
        """The page at `/metrics`: the sidecar's own state."""
        ...

    def names(self) -> list[str]:
        """Every server, in a stable order."""
        ...

    def labels(self, name: str) -> Mapping[str, str]:
        """What Prometheus adds to all series of a server."""
        ...

    def server(self, name: str) -> Exposition | None:
        """The page of one server, or None where no server has that name."""
        ...


def sidecar_app(pages: Pages, address: str | None = None) -> FastAPI:
    """`/metrics`, `/scrape`, `/targets` and `/health`.

    address: the host:port that `/targets` names; None: that of the request's Host header.
    """
    app = bare_app("kvscope sidecar")
    app.include_router(_own_router(pages))
    app.include_router(_scrape_router(pages))
    app.include_router(_targets_router(pages, address))

    @app.api_route("/health", methods=METHODS)
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    return app


def _own_router(pages: Pages) -> APIRouter:
    router = APIRouter()

    @router.api_route(PATH, methods=METHODS)
    def metrics(request: Request) -> Response:  # on a worker thread
        return page_response(pages.own, request)

    return router


def _scrape_router(pages: Pages) -> APIRouter:
    router = APIRouter()

    @router.api_route("/scrape", methods=METHODS)
    def scrape(request: Request, target: str = "") -> Response:  # on a worker thread
        known = ", ".join(pages.names()) or "none"
        if not target:
            return PlainTextResponse(f"name a server: /scrape?target=NAME, one of: {known}\n", 400)
        page = pages.server(target)
        if page is None:
            return PlainTextResponse(f"no server {target!r} here; known: {known}\n", 404)
        return page_response(page, request)

    return router


def _targets_router(pages: Pages, address: str | None) -> APIRouter:
    router = APIRouter()

    @router.api_route("/targets", methods=METHODS)
    async def targets(request: Request) -> Response:
        here = address or request.headers.get("host", "")
        if not is_address(here):
            return PlainTextResponse(f"the Host header {here!r} is no host and port\n", 400)
        return JSONResponse([_target(here, name, pages.labels(name)) for name in pages.names()])

    return router


def _target(address: str, name: str, labels: Mapping[str, str]) -> dict[str, object]:
    """One entry in the format of Prometheus' http_sd_config."""
    own = {"__metrics_path__": "/scrape", "__param_target": name, "instance": name}
    return {"targets": [address], "labels": {**labels, **own}}
