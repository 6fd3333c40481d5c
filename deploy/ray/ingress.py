"""OpenAI's API in front of the replicas, and the list of their pages for Prometheus."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError
from ray.serve.handle import DeploymentHandle

from deploy.ray.caches import caches_of
from deploy.ray.call import Call, Head
from deploy.ray.prompt_names import CHAT_PATH, COMPLETIONS_PATH, PromptNames
from engine.model.loader import tokenizer_of
from engine.server.app import ApiConfig

PASSED_ON = ("authorization", "content-type", "traceparent", "tracestate", "x-request-id")
MAX_BODY_BYTES = ApiConfig().max_body_bytes
RETRY_AFTER = {"Retry-After": "1"}

app = FastAPI(title="kvscope on Ray Serve", docs_url=None, redoc_url=None)
logger = logging.getLogger("ray.serve")


# Before the class, at which Serve copies the functions of this module.


async def _body_of(request: Request) -> bytes | None:
    """None: longer than an engine would read."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY_BYTES:
            return None
    return bytes(body)


async def _pieces(answers: Any) -> AsyncIterator[bytes]:
    """The rest of an answer. When the client leaves, its replica hears of it."""
    try:
        async for piece in answers:
            yield piece
    finally:
        answers.cancel()


def _error(status: int, message: str) -> JSONResponse:
    """In the form of OpenAI's errors."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    content = {"error": {"message": message, "type": kind, "param": None, "code": None}}
    return JSONResponse(content, status, headers=RETRY_AFTER if status == 503 else None)


@serve.ingress(app)
class Ingress:
    """Has each prompt's names ready before the router chooses."""

    def __init__(self, engines: DeploymentHandle, model: str) -> None:
        """model: as in `kvscope serve --model`; its tokenizer must be readable here."""
        self._engines = engines
        self._tokenizer = tokenizer_of(model)
        self._naming: PromptNames | None = None

    @app.post(COMPLETIONS_PATH)
    @app.post(CHAT_PATH)
    async def generate(self, request: Request) -> Response:
        body = await _body_of(request)
        if body is None:
            return _error(413, f"the body is over {MAX_BODY_BYTES} bytes")
        path = str(request.url.path)
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        try:
            naming = await self._ready()
            names = await asyncio.to_thread(naming.names, path, body)
            answers = self._engines.answer.options(stream=True).remote(
                Call(path, body, headers, names)
            )
            head = await anext(answers)
        except BackPressureError:
            return _error(503, "all replicas are busy, and the queue is full: try again later")
        except RayError as error:
            logger.warning("a replica failed before it answered: %s", error)
            return _error(503, "the replica has ended: try again")
        assert isinstance(head, Head)
        return StreamingResponse(_pieces(answers), head.status, dict(head.headers))

    @app.get("/v1/models")
    async def models(self) -> Response:
        try:
            return Response(await self._engines.models.remote(), media_type="application/json")
        except (BackPressureError, RayError):
            return _error(503, "no replica answers: try again")

    @app.get("/targets")
    async def targets(self) -> Response:
        """The pages of all replicas, for `http_sd_configs` and `kvscope fleet --sidecars-from`."""
        await self._ready()  # the router exists from the first call on
        known = caches_of(self._engines.app_name, self._engines.deployment_name).addresses
        return JSONResponse(
            [
                {"targets": [addresses["page"]], "labels": {"replica": replica}}
                for replica, addresses in sorted(known.items())
            ]
        )

    async def _ready(self) -> PromptNames:
        if self._naming is None:
            self._naming = PromptNames(self._tokenizer, await self._engines.facts.remote())
        return self._naming
