"""Errors as OpenAI's API gives them: {"error": {"message", "type", "param", "code"}}."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from engine.server.protocol import FieldError
from engine.step_loop import EngineUnavailableError, QueueFullError
from kvscope_events.vocabulary import RejectReason

RETRY_AFTER_SECONDS = 1

logger = logging.getLogger(__name__)


class BadRequestError(Exception):
    """A request that cannot be served; `param` is the field to change."""

    def __init__(
        self, param: str | None, message: str, *, reason: RejectReason = "invalid"
    ) -> None:
        super().__init__(message)
        self.param = param
        self.reason: RejectReason = reason


def error_body(message: str, kind: str, param: str | None, code: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def install(app: FastAPI, reject: Callable[[RejectReason], None]) -> None:
    """Give every error of the app OpenAI's shape; `reject` counts requests with bad content."""

    async def bad_request(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, BadRequestError)
        reject(error.reason)
        body = error_body(str(error), "invalid_request_error", error.param, 400)
        return JSONResponse(body, 400)

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        reject("invalid")
        return JSONResponse(_validation_body(error), 400)

    async def http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        if error.status_code in (400, 413):  # a body that could not be read, or not parsed
            reject("invalid")
        body = error_body(str(error.detail), "invalid_request_error", None, error.status_code)
        return JSONResponse(body, error.status_code, error.headers)

    app.add_exception_handler(BadRequestError, bad_request)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(QueueFullError, _queue_full)
    app.add_exception_handler(EngineUnavailableError, _unavailable)
    app.add_exception_handler(Exception, _internal)


async def _queue_full(request: Request, error: Exception) -> JSONResponse:
    body = error_body(str(error), "rate_limit_exceeded", None, 429)
    return JSONResponse(body, 429, {"Retry-After": str(RETRY_AFTER_SECONDS)})


async def _unavailable(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse(error_body(str(error), "service_unavailable", None, 503), 503)


async def _internal(request: Request, error: Exception) -> JSONResponse:
    logger.error("%s failed", request.url.path, exc_info=error)
    return JSONResponse(error_body("internal error", "internal_error", None, 500), 500)


def _validation_body(error: RequestValidationError) -> dict[str, Any]:
    problem = error.errors()[0]
    if problem["type"] == "json_invalid":
        detail = problem.get("ctx", {}).get("error", problem["msg"])
        message = f"the body is not valid JSON: {detail} (position {problem['loc'][-1]})"
        return error_body(message, "invalid_request_error", None, 400)
    context = problem.get("ctx", {}).get("error")
    if isinstance(context, FieldError):
        return error_body(str(context), "invalid_request_error", context.field, 400)
    path = _path(problem["loc"])
    if not path:
        message = "the body must be a JSON object, sent with Content-Type: application/json"
        return error_body(message, "invalid_request_error", None, 400)
    message = f"{'.'.join(path)}: {problem['msg']}"
    while path[-1].isdecimal():  # the field is to be changed, not its n-th element
        path.pop()
    return error_body(message, "invalid_request_error", ".".join(path), 400)


def _path(location: Sequence[Any]) -> list[str]:
    """('body', 'messages', 0, 'content', '<text>') → messages, 0, content: tags are no fields."""
    return [str(part) for part in location[1:] if not str(part).startswith("<")]
