"""Lets an app begin with a request only once its body is there, unless that is a large one.

A client that never completes a body then costs a connection, and none of the app's work.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

WAIT_BYTES = 64 << 10
"""Of a body that are waited for; uvicorn reads no more ahead either."""
_WITHOUT_BODY = ("GET", "HEAD", "OPTIONS")


class Arrival:
    """ASGI middleware; a request whose client goes away before reaches nobody."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in _WITHOUT_BODY:
            await self._app(scope, receive, send)
            return
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if not message.get("more_body") or len(body) >= WAIT_BYTES:
                break
        first: Message | None = {**message, "body": bytes(body)}

        async def replayed() -> Message:
            nonlocal first
            if first is None:
                return await receive()
            message, first = first, None
            return message

        await self._app(scope, replayed, send)
