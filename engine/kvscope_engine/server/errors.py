"""Errors in the form of OpenAI's API: {"error": {"message", "type", "param", "code"}}."""

import logging
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from kvscope_engine.model.chat_template import BrokenTemplateError, TemplateFailure
from kvscope_engine.step_loop import EngineUnavailableError, QueueFullError
from kvscope_events.throttle import ThrottledLog
from kvscope_events.vocabulary import RejectReason

RETRY_AFTER_SECONDS = 1

CLIENT_CLOSED_REQUEST = 499

_log = ThrottledLog(logging.getLogger(__name__))


class BusyError(Exception):
    """Too much work of this kind is already waiting."""

    def __init__(self) -> None:
        super().__init__("too many large requests wait already: try again later")


class BadRequestError(Exception):
    """A request that cannot be served; `param` is the field to change."""

    def __init__(
        self, param: str | None, message: str, *, reason: RejectReason = "invalid"
    ) -> None:
        super().__init__(message)
        self.param = param
        self.reason: RejectReason = reason


class ClientLimitError(Exception):
    """A client has reached its limits."""


def error_body(message: str, kind: str, param: str | None, code: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def install(app: FastAPI, reject: Callable[[RejectReason], None]) -> None:
    """Give every error of the app OpenAI's form; `reject` counts requests with bad content."""

    async def bad_request(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, BadRequestError)
        reject(error.reason)
        body = error_body(str(error), "invalid_request_error", error.param, 400)
        return JSONResponse(body, 400)

    async def http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        if error.status_code in (400, 413):  # a body that could not be read, or not parsed
            reject("invalid")
        body = error_body(str(error.detail), "invalid_request_error", None, error.status_code)
        return JSONResponse(body, error.status_code, error.headers)

    async def busy(request: Request, error: Exception) -> JSONResponse:
        reject("queue_full" if isinstance(error, BusyError) else "client_limit")
        return await _too_many(request, error)

    app.add_exception_handler(BadRequestError, bad_request)
    app.add_exception_handler(BusyError, busy)
    app.add_exception_handler(ClientLimitError, busy)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(BrokenTemplateError, _cannot)
    app.add_exception_handler(TemplateFailure, _failed)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(QueueFullError, _too_many)
    app.add_exception_handler(EngineUnavailableError, _unavailable)
    app.add_exception_handler(Exception, _internal)


async def _too_many(request: Request, error: Exception) -> JSONResponse:
    body = error_body(str(error), "rate_limit_exceeded", None, 429)
    return JSONResponse(body, 429, {"Retry-After": str(RETRY_AFTER_SECONDS)})


async def _unavailable(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse(error_body(str(error), "service_unavailable", None, 503), 503)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def _cannot(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse(error_body(str(error), "not_implemented", None, 501), 501)


async def _failed(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse(error_body(str(error), "internal_error", None, 500), 500)


async def _internal(request: Request, error: Exception) -> JSONResponse:
    _log.log(logging.ERROR, type(error).__name__, f"{request.url.path} failed", error)
    return JSONResponse(error_body("internal error", "internal_error", None, 500), 500)


def prompt_too_long(
    field: str, tokens: int, limit: int, *, at_least: bool = False
) -> BadRequestError:
    """The refusal of a prompt. at_least: its full length was not counted."""
    return BadRequestError(
        field,
        f"{field}: {'at least ' if at_least else ''}{tokens} tokens, but the model's limit is "
        f"{limit} and the answer needs at least one: shorten it",
        reason="prompt_too_long",
    )
