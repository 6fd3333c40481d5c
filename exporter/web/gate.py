"""Answers with 503 instead of an app that takes minutes to build, then passes requests to it."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from exporter.paths import HEALTH
from exporter.web.refusal import Refused

RETRY_AFTER_SECONDS = 5
"""Value of Retry-After. Loading takes seconds to minutes; this suits both."""


class Gate:
    """An ASGI app. Until it is opened, it answers with 503; `/health` reports `loading`."""

    def __init__(self) -> None:
        self._app: ASGIApp = _loading

    def open(self, app: ASGIApp) -> None:
        """Pass every request from now on to this app. The caller runs its lifespan."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


async def _loading(scope: Scope, receive: Receive, send: Send) -> None:
    await _refusal(Request(scope))(scope, receive, send)


def _refusal(request: Request) -> Response:
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
    if request.url.path == HEALTH.path:
        return JSONResponse({"status": "loading"}, 503, headers)
    message = f"the model is still loading: try again in {RETRY_AFTER_SECONDS} s"
    return Refused(503, message, headers).response
