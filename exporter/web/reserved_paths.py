"""What a client is answered that takes the last connections: /health, /metrics, or 503."""

from starlette.types import ASGIApp, Receive, Scope, Send

from exporter.paths import PATHS
from exporter.web.refusal import Refused

_KEPT = frozenset(row.path for row in PATHS if row.keeps_room)
RETRY_AFTER_SECONDS = 1


class Crowded:
    """In front of an app, for connections that are kept for those who watch the server."""

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
