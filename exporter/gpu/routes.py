"""Lets an operator make us let go of the GPUs, for a reset or a change of MIG, and take them up."""

import hmac
from typing import Annotated

from fastapi import APIRouter, Header, HTTPException, Response

from exporter.gpu.poller import GpuPoller


def gpu_router(poller: GpuPoller, api_key: str | None = None) -> APIRouter:
    """`POST /api/gpu/release` and `/api/gpu/resume`; api_key: the bearer token they ask for.

    Both answer with the poller's state; 202 where the driver still holds a call of ours.
    """
    router = APIRouter(prefix="/api/gpu", include_in_schema=False)

    @router.post("/release")
    def release(response: Response, authorization: Annotated[str, Header()] = "") -> dict[str, str]:
        _check(authorization, api_key)
        state = poller.release()
        if state == "releasing":
            response.status_code = 202
        return {"state": state}

    @router.post("/resume")
    def resume(authorization: Annotated[str, Header()] = "") -> dict[str, str]:
        _check(authorization, api_key)
        return {"state": poller.resume()}

    return router


def _check(authorization: str, api_key: str | None) -> None:
    if api_key is None:
        return
    expected = f"Bearer {api_key}".encode()
    if not hmac.compare_digest(authorization.encode("latin-1"), expected):
        raise HTTPException(
            401,
            "missing or wrong API key: send 'Authorization: Bearer <key>'",
            {"WWW-Authenticate": "Bearer"},
        )
