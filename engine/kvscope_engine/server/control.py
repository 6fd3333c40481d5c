"""Operators' routes of a running engine: its health, and a reset of its prefix cache."""

import msgspec
from fastapi import APIRouter, FastAPI
from fastapi.responses import JSONResponse, Response

from kvscope_engine.server import errors
from kvscope_engine.server.dispatch import Dispatcher
from kvscope_engine.server.responses import Healthy, responses
from kvscope_engine.server.schemas import schema_of


class _Unhealthy(msgspec.Struct):
    status: str
    reason: str = ""


_UNHEALTHY = {
    "description": "The model still loads, or the step loop has died or stalls.",
    "content": {"application/json": {"schema": schema_of(_Unhealthy)}},
}


def create_control_app(dispatcher: Dispatcher) -> FastAPI:
    """Both on a port of their own, away from the API; on any event loop."""
    app = FastAPI(title="kvscope control", docs_url=None, redoc_url=None, openapi_url=None)
    errors.install(app, lambda reason: dispatcher.engine.reject(reason))
    app.include_router(health_router(dispatcher))
    app.include_router(control_router(dispatcher))
    return app


def control_router(dispatcher: Dispatcher) -> APIRouter:
    """Changes the engine: the app that includes it controls access."""
    router = APIRouter()

    @router.post(
        "/reset_prefix_cache",
        status_code=202,
        response_class=Response,
        responses=responses(202, "Done before the next step.", None, 401, 403, 415, 503),
    )
    async def reset_prefix_cache() -> Response:
        dispatcher.engine.reset_prefix_cache()
        return Response(status_code=202)

    return router


def health_router(dispatcher: Dispatcher) -> APIRouter:
    router = APIRouter()

    @router.get(
        "/health",
        responses={**responses(200, "Ready, and making progress.", Healthy), 503: _UNHEALTHY},
    )
    # One route answers both methods, and names both in `Allow`; the other one is described.
    @router.api_route("/health", methods=["GET", "HEAD"], include_in_schema=False)
    async def health() -> JSONResponse:
        state = dispatcher.engine.health()
        if state.ok:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "unhealthy", "reason": state.reason}, 503)

    return router
