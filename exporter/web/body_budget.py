"""Bounds the memory of all bodies that are being received: many slow uploads are not to fill it."""

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOTAL_BYTES = 64 << 20
"""Of all bodies together; eight of the largest that the API takes."""
FREE_BYTES = 64 << 10
"""Of each body, which do not count: a prompt of usual length is taken whatever others send, and
as many as there can be connections take no more than the total."""
RETRY_AFTER_SECONDS = 5


class BodyBudget:
    """ASGI middleware; a large body is answered 503 while others have used up the total.

    A body counts until the app answers its request.
    """

    def __init__(self, app: ASGIApp, total_bytes: int = TOTAL_BYTES) -> None:
        self._app = app
        self._left = total_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        received = counted = 0

        async def limited() -> Message:
            nonlocal received, counted
            message = await receive()
            received += len(message.get("body", b""))
            more = max(0, received - FREE_BYTES) - counted
            if more > self._left:
                raise HTTPException(
                    503,
                    "too many large bodies are being received: try again in "
                    f"{RETRY_AFTER_SECONDS} s",
                    {"Retry-After": str(RETRY_AFTER_SECONDS)},
                )
            counted += more
            self._left -= more
            return message

        def release() -> None:
            nonlocal counted, received
            self._left += counted
            counted = received = 0

        async def answered(message: Message) -> None:
            release()
            await send(message)

        try:
            await self._app(scope, limited, answered)
        finally:
            release()
