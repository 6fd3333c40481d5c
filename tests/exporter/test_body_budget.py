"""Many large bodies at a time take a bounded memory, and small ones are taken all the same."""

import asyncio

import httpx
import pytest
from fastapi import FastAPI, Request

from exporter.web.body_budget import FREE_BYTES, BodyBudget

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_large_bodies_share_a_budget_and_small_ones_need_none() -> None:
    app = FastAPI()
    held = asyncio.Event()
    holding = 0

    @app.post("/")
    async def length(request: Request, hold: bool = False) -> int:
        nonlocal holding
        body = await request.body()
        holding += hold
        if hold:
            await held.wait()
        return len(body)

    transport = httpx.ASGITransport(BodyBudget(app, total_bytes=2 * FREE_BYTES))
    async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
        large, small = b"x" * (2 * FREE_BYTES), b"x" * FREE_BYTES
        first = [asyncio.ensure_future(client.post("/?hold=1", content=large)) for _ in range(2)]
        while holding < 2:
            await asyncio.sleep(0.01)
        refused = await client.post("/", content=large)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) > 0
        assert (await client.post("/", content=small)).json() == FREE_BYTES
        held.set()
        assert [answer.json() for answer in await asyncio.gather(*first)] == [2 * FREE_BYTES] * 2
        for _ in range(3):
            assert (await client.post("/", content=large)).json() == 2 * FREE_BYTES
