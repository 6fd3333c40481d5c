"""Releases the GPUs for a reset or a change of MIG mode, and resumes polling afterwards.

These routes do not check a key: the app that includes them controls access.
"""

from fastapi import APIRouter, Response

from kvscope_exporter.machine.gpu import GpuPoller


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
