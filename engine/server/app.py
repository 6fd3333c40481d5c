"""The engine's HTTP face: OpenAI's completion APIs, the model list, health."""

import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException
from fastapi.responses import JSONResponse, Response

from engine.config import SchedulerConfig
from engine.model.tokenizer import Tokenizer
from engine.server import errors
from engine.server.body_limit import BodyLimit
from engine.server.calls import make_calls
from engine.server.chat import chat_router
from engine.server.completions import completions_router
from engine.server.dispatch import Dispatcher
from engine.server.requests import ServedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConfig:
    """The HTTP side of the server."""

    api_key: str | None = None
    """Bearer token that /v1 asks for; None: open."""
    max_body_bytes: int = 8 * 2**20
    """Larger bodies get 413. A million token ids fit; parsing one holds the GIL for a second."""


def create_app(
    dispatcher: Dispatcher,
    tokenizer: Tokenizer,
    model: ServedModel,
    scheduler: SchedulerConfig,
    config: ApiConfig,
    routers: Iterable[APIRouter] = (),
    guarded_routers: Iterable[APIRouter] = (),
) -> FastAPI:
    """The app over a running engine, and what others serve on the same port.

    routers: open to everybody. guarded_routers: ask for the API key, where there is one.
    """

    calls = make_calls(dispatcher, tokenizer, model, scheduler)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        dispatcher.bind()
        yield
        calls.close()

    app = FastAPI(title="kvscope engine", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(BodyLimit, max_bytes=config.max_body_bytes)
    errors.install(app, lambda reason: dispatcher.engine.reject(reason))
    guard = [] if config.api_key is None else [Depends(_key_check(config.api_key))]
    for guarded in (
        completions_router(calls),
        chat_router(calls),
        _control_router(dispatcher, model, scheduler),
        *guarded_routers,
    ):
        app.include_router(guarded, dependencies=guard)
    for router in (_health_router(dispatcher), *routers):
        app.include_router(router)
    return app


def _control_router(
    dispatcher: Dispatcher, model: ServedModel, scheduler: SchedulerConfig
) -> APIRouter:
    router = APIRouter()

    @router.get("/v1/models")
    async def models() -> dict[str, object]:
        card = {
            "id": model.name,
            "object": "model",
            "created": model.created,
            "owned_by": "kvscope",
            "root": model.name,
            "max_model_len": scheduler.max_model_len,
        }
        return {"object": "list", "data": [card]}

    @router.post("/reset_prefix_cache")
    async def reset_prefix_cache() -> Response:
        dispatcher.engine.reset_prefix_cache()
        return Response(status_code=202)

    return router


def _health_router(dispatcher: Dispatcher) -> APIRouter:
    router = APIRouter()

    @router.get("/health")
    async def health() -> JSONResponse:
        state = dispatcher.engine.health()
        if state.ok:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "unhealthy", "reason": state.reason}, 503)

    return router


def _key_check(api_key: str) -> Callable[[str], Awaitable[None]]:
    expected = f"Bearer {api_key}".encode()

    async def check(authorization: Annotated[str, Header()] = "") -> None:
        if not hmac.compare_digest(authorization.encode("latin-1"), expected):  # as it was sent
            raise HTTPException(
                401,
                "missing or wrong API key: send 'Authorization: Bearer <key>'",
                {"WWW-Authenticate": "Bearer"},
            )

    return check
