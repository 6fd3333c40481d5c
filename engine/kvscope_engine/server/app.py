"""The engine's HTTP face: OpenAI's completion APIs, the model list, health.

It requires no key: access control is in front of it.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import APIRouter, FastAPI

from kvscope_engine.config import SchedulerConfig
from kvscope_engine.model.tokenizer import Tokenizer
from kvscope_engine.server import errors
from kvscope_engine.server.body import BodyReader
from kvscope_engine.server.chat import chat_router
from kvscope_engine.server.clients import ClientLimits, Workers
from kvscope_engine.server.completions import completions_router
from kvscope_engine.server.control import health_router
from kvscope_engine.server.dispatch import Dispatcher
from kvscope_engine.server.logprobs import TokenNames
from kvscope_engine.server.requests import Calls, Encoder, RequestFactory, ServedModel
from kvscope_engine.server.responses import Models, responses


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConfig:
    """The HTTP side of the server."""

    max_body_bytes: int = 8 * 2**20
    """Larger bodies get 413. A million token ids fit; decoding holds the interpreter for 0.1 s."""
    begins_traces: bool = False
    """A call without a `traceparent` gets a trace of its own, for the spans."""


def create_app(
    dispatcher: Dispatcher,
    tokenizer: Tokenizer,
    model: ServedModel,
    scheduler: SchedulerConfig,
    config: ApiConfig,
    routers: Iterable[APIRouter] = (),
) -> FastAPI:
    """The app of a running engine, with further routers on the same port.

    routers: further ones.
    """
    calls = _calls(dispatcher, tokenizer, model, scheduler, config)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        dispatcher.bind()
        try:
            yield
        finally:
            calls.close()

    app = FastAPI(title="kvscope engine", lifespan=lifespan, docs_url=None, redoc_url=None)
    errors.install(app, lambda reason: dispatcher.engine.reject(reason))
    for router in (
        completions_router(calls),
        chat_router(calls),
        _models_router(model, scheduler),
        health_router(dispatcher),
        *routers,
    ):
        app.include_router(router)
    return app


def _calls(
    dispatcher: Dispatcher,
    tokenizer: Tokenizer,
    model: ServedModel,
    scheduler: SchedulerConfig,
    config: ApiConfig,
) -> Calls:
    workers = Workers("kvscope-requests")
    limit = scheduler.max_model_len
    return Calls(
        dispatcher=dispatcher,
        tokenizer=tokenizer,
        factory=RequestFactory(model, scheduler, begins_traces=config.begins_traces),
        reader=BodyReader(workers, config.max_body_bytes),
        encoder=Encoder(tokenizer, workers, limit),
        names=TokenNames(tokenizer),
        limits=ClientLimits(scheduler.max_client_requests, scheduler.max_client_tokens),
        workers=workers,
        templates=Workers("kvscope-templates"),
        model=model.name,
        limit=limit,
    )


def _models_router(model: ServedModel, scheduler: SchedulerConfig) -> APIRouter:
    router = APIRouter()

    @router.get("/v1/models", responses=responses(200, "The served model.", Models, 401, 503))
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

    return router
