"""A replica: one engine, and what Serve asks of it."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import httpx
import ray

from deploy.ray.call import Call, Facts, Head
from deploy.ray.engine_process import Addresses, EngineProcess

NO_TIMEOUT = httpx.Timeout(None)
"""An answer takes as long as it takes: the client's patience ends it."""
_KEPT_HEADERS = ("content-type", "retry-after")


class EngineReplica:
    """Serve replaces it when its engine has ended or stalls."""

    def __init__(self, options: Sequence[str], block_size: int) -> None:
        """options: of `kvscope serve`. Raises EngineEndedError."""
        self._block_size = block_size
        self._engine = EngineProcess(options, ray.util.get_node_ip_address())
        self._engine.wait_until_ready()
        self._client = httpx.AsyncClient(
            base_url=self._engine.url,
            timeout=NO_TIMEOUT,
            limits=httpx.Limits(max_connections=None),
            trust_env=False,
        )

    def record_replica_metadata(self) -> Addresses:
        """Called by Serve once; every router receives it."""
        return self._engine.addresses

    async def check_health(self) -> None:
        """Called by Serve from time to time; raises what is wrong."""
        await asyncio.to_thread(self._engine.check_health)

    async def facts(self) -> Facts:
        card = (await self._client.get("/v1/models")).json()["data"][0]
        return Facts(card["id"], self._block_size, card["max_model_len"])

    async def models(self) -> bytes:
        """The engine's answer to /v1/models."""
        return (await self._client.get("/v1/models")).content

    async def answer(self, call: Call) -> AsyncIterator[Head | bytes]:
        """A head, then the body as it comes. If the caller leaves, the engine ends the request."""
        request = self._client.stream(
            "POST", call.path, content=call.body, headers=dict(call.headers)
        )
        async with request as response:
            kept = {name: response.headers.get(name) for name in _KEPT_HEADERS}
            yield Head(response.status_code, {k: v for k, v in kept.items() if v is not None})
            async for piece in response.aiter_bytes():
                yield piece

    def __del__(self) -> None:
        """Called by Serve when it stops a replica that has no requests left."""
        if hasattr(self, "_engine"):
            self._engine.stop()
