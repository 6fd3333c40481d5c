"""Takes a server that ended on purpose off its page, until it is heard again.

This route does not check a key: the app that includes it controls access.
"""

from collections.abc import Callable

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from kvscope_exporter.targets.exporter import Exporter
from kvscope_exporter.web.answers import NoServerError


def retire_router(find: Callable[[str], Exporter]) -> APIRouter:
    """`POST /api/retire`, with `?target=SERVER` if there are several.

    find: the server named; an empty name stands for the only one. Raises NoServerError.
    """
    router = APIRouter(prefix="/api", include_in_schema=False)

    @router.post("/retire")
    def retire(target: str = "") -> Response:  # on a worker thread: pages are read
        try:
            server = find(target)
        except NoServerError as error:
            return PlainTextResponse(f"{error}\n", error.status)
        retired, state = server.presence.retire()
        return JSONResponse({"retired": retired, "state": state})

    return router
