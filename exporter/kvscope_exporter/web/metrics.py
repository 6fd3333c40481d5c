"""Pages of metrics over HTTP: negotiated, compressed, rendered on a worker thread."""

import gzip
from typing import Protocol, cast, get_args

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import PlainTextResponse

from kvscope_exporter.catalogue.metric import Detail
from kvscope_exporter.paths import COMPACT, METRICS
from kvscope_exporter.targets.exposition import accepts_gzip

METHODS = ["GET", "HEAD"]


class Exposition(Protocol):
    """A page that can be served."""

    def render(self, accept: str | None = None, detail: Detail | None = None) -> tuple[bytes, str]:
        """The page and its content type. detail: None: what is configured."""
        ...


def metrics_router(exposition: Exposition, path: str = METRICS.path) -> APIRouter:
    """One page at one path, for an app."""
    router = APIRouter()

    # Not a coroutine, so that FastAPI calls it on a worker thread and not on the event loop.
    @router.api_route(path, methods=METHODS, include_in_schema=False)
    def metrics(request: Request) -> Response:
        return page_response(exposition, request)

    return router


def no_metrics_router(hint: str) -> APIRouter:
    """404 at `/metrics` and below, with a hint where the metrics are, or how to get them."""
    router = APIRouter()

    @router.api_route(COMPACT.path, methods=METHODS, include_in_schema=False)
    @router.api_route(METRICS.path, methods=METHODS, include_in_schema=False)
    async def metrics() -> Response:
        return PlainTextResponse(f"{hint}\n", 404)

    return router


def metrics_app(exposition: Exposition) -> FastAPI:
    """`/metrics` and nothing else, for a port of its own."""
    app = bare_app("kvscope metrics")
    app.include_router(metrics_router(exposition))
    return app


def bare_app(title: str) -> FastAPI:
    """An app without pages of documentation."""
    return FastAPI(title=title, docs_url=None, redoc_url=None, openapi_url=None)


def page_response(exposition: Exposition, request: Request) -> Response:
    """Render the page for this request. It is slow: call it on a worker thread."""
    detail = request.query_params.get("detail")
    if detail is not None and detail not in get_args(Detail):
        known = " or ".join(get_args(Detail))
        return PlainTextResponse(f"detail={detail}: expected {known}\n", 400)
    accept = ", ".join(request.headers.getlist("accept"))
    page, content_type = exposition.render(accept, cast(Detail | None, detail))
    headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
    if accepts_gzip(", ".join(request.headers.getlist("accept-encoding"))):
        page = gzip.compress(page, compresslevel=1)
        headers["Content-Encoding"] = "gzip"
    return Response(page, headers=headers)
