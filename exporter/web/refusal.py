"""Refuses a request before an app sees it, in OpenAI's format; also for lack of connections."""

from collections.abc import Mapping

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from exporter.paths import PATHS

_KEPT = frozenset(row.path for row in PATHS if row.keeps_room)
RETRY_AFTER_SECONDS = 1


class Crowded:
    """Middleware for connections that are reserved for monitoring."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in _KEPT:
            await self._app(scope, receive, send)
            return
        refused = Refused(
            503,
            f"too many connections: try again in {RETRY_AFTER_SECONDS} s",
            {"Retry-After": str(RETRY_AFTER_SECONDS), "Connection": "close"},
        )
        await refused.response(scope, receive, send)


_KINDS = {503: "service_unavailable"}
_KIND = "invalid_request_error"


class Refused(Exception):
    """The reason why a request is refused; `response` is its answer."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})

    @property
    def response(self) -> JSONResponse:
        error = {
            "message": str(self),
            "type": _KINDS.get(self.status, _KIND),
            "param": None,
            "code": self.status,
        }
        return JSONResponse({"error": error}, self.status, self.headers)
