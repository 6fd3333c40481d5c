"""`GET /metrics/compact`, answered on the event loop: a thread would take longer than the page."""

from collections.abc import Callable
from typing import Protocol

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from kvscope_exporter.paths import COMPACT
from kvscope_exporter.targets.compact import CONTENT_TYPE
from kvscope_exporter.web.answers import NoServerError
from kvscope_exporter.web.metrics import METHODS


class Compact(Protocol):
    """A server whose signals can be served."""

    def compact(self) -> bytes:
        """The page; made immediately, from stored figures."""
        ...


def compact_router(find: Callable[[str], Compact]) -> APIRouter:
    """The page of the server in `?target=`; an empty name stands for the only one.

    find: raises NoServerError.
    """
    router = APIRouter()

    async def compact(request: Request) -> Response:
        try:
            server = find(request.query_params.get("target", ""))
        except NoServerError as error:
            return PlainTextResponse(f"{error}\n", error.status)
        return Response(server.compact(), headers={"Content-Type": CONTENT_TYPE})

    router.add_route(COMPACT.path, compact, methods=METHODS)  # without FastAPI's parsing
    return router
