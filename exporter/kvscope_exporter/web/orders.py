"""Orders of an operator: release the GPUs for a reset, retire a server that has ended on purpose.

These routes do not check a key: the app that includes them controls access.
"""

from collections.abc import Callable

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from kvscope_exporter.machine.gpu import GpuPoller
from kvscope_exporter.targets.exporter import Exporter
from kvscope_exporter.web.answers import NoServerError


def gpu_router(poller: GpuPoller) -> APIRouter:
    """`POST /api/gpu/release` and `/api/gpu/resume`; both answer with the poller's state.

    The answer to a release is 202 while the driver still holds one of our calls.
    """
    router = APIRouter(prefix="/api/gpu", include_in_schema=False)

    @router.post("/release")
    def release(response: Response) -> dict[str, str]:
        state = poller.release()
        if state == "releasing":
            response.status_code = 202
        return {"state": state}

    @router.post("/resume")
    def resume() -> dict[str, str]:
        return {"state": poller.resume()}

    return router


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
