"""Stands before an app that takes minutes to build: refuses politely, then lets everything pass."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

RETRY_AFTER_SECONDS = 5
"""Loading takes seconds to minutes: soon enough for the short case, rare enough for the long."""
HEALTH = "/health"


class Gate:
    """An ASGI app. Until it is opened, `/health` says `loading` and all else is 503."""

    def __init__(self) -> None:
        self._app: ASGIApp = _loading

    def open(self, app: ASGIApp) -> None:
        """Hand every request from now on to this app. Its lifespan is the caller's business."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


async def _loading(scope: Scope, receive: Receive, send: Send) -> None:
    await _refusal(Request(scope))(scope, receive, send)


def _refusal(request: Request) -> Response:
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
    if request.url.path == HEALTH:
        return JSONResponse({"status": "loading"}, 503, headers)
    error = {  # the shape of OpenAI's API: clients of /v1 read it
        "message": f"the model is still loading: try again in {RETRY_AFTER_SECONDS} s",
        "type": "service_unavailable",
        "param": None,
        "code": 503,
    }
    return JSONResponse({"error": error}, 503, headers)
