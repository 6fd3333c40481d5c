"""Reading bodies: the memory that all of them hold together, and errors about their form."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from kvscope_engine.server import body as reading
from kvscope_engine.server.body import SMALL_BODY, BodyReader
from kvscope_engine.server.clients import Workers
from kvscope_engine.server.errors import BadRequestError, BusyError
from tests.support.server import Server

MAX_BYTES = 8 * SMALL_BODY


class Call:
    """A request whose body comes in parts, with a pause before the last one."""

    def __init__(self, *chunks: bytes, go: asyncio.Event | None = None, kind: str = "") -> None:
        self.headers = {"content-type": kind or "application/json"}
        self.scope = {"type": "http", "client": ("127.0.0.1", 1)}
        self._chunks = chunks
        self._go = go

    async def stream(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk
        if self._go is not None:
            await self._go.wait()


async def read(reader: BodyReader, call: Any) -> int:
    async with reader.read(call, len) as length:
        return length


def test_larger_bodies_share_memory_and_small_ones_always_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "MAX_BYTES_HELD", 3 * SMALL_BODY)
    large = b"x" * (2 * SMALL_BODY)

    async def main() -> None:
        workers = Workers("test")
        reader, go = BodyReader(workers, MAX_BYTES), asyncio.Event()
        first = asyncio.ensure_future(read(reader, Call(large, go=go)))
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await read(reader, Call(large))
        assert await read(reader, Call(b"{}")) == 2
        go.set()
        assert await first == len(large)
        assert await read(reader, Call(large)) == len(large), "what was held is free again"
        workers.close()

    asyncio.run(main())


def test_a_body_counts_until_its_prompt_has_become_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "MAX_BYTES_HELD", 3 * SMALL_BODY)
    large: Any = Call(b"x" * (2 * SMALL_BODY))

    async def main() -> None:
        workers = Workers("test")
        reader = BodyReader(workers, MAX_BYTES)
        async with reader.read(large, len):
            with pytest.raises(BusyError):
                await read(reader, large)
        assert await read(reader, large) == 2 * SMALL_BODY
        workers.close()

    asyncio.run(main())


def test_a_body_whose_client_goes_away_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_BYTES_HELD", 3 * SMALL_BODY)
    large = b"x" * (2 * SMALL_BODY)

    class Leaving(Call):
        async def stream(self) -> AsyncIterator[bytes]:
            yield large
            raise ClientDisconnect

    async def main() -> None:
        workers = Workers("test")
        reader = BodyReader(workers, MAX_BYTES)
        for _ in range(3):
            with pytest.raises(ClientDisconnect):
                await read(reader, Leaving())
        assert await read(reader, Call(large)) == len(large)
        workers.close()

    asyncio.run(main())


def test_a_body_over_the_limit_is_refused_announced_or_not() -> None:
    async def main() -> None:
        reader = BodyReader(Workers("test"), MAX_BYTES)
        announced = Call()
        announced.headers["content-length"] = str(MAX_BYTES + 1)
        for call in (announced, Call(b"x" * MAX_BYTES, b"x")):
            with pytest.raises(HTTPException) as caught:
                await read(reader, call)
            assert caught.value.status_code == 413
            assert caught.value.headers == {"Connection": "close"}

    asyncio.run(main())


@pytest.mark.parametrize(
    ("kind", "taken"),
    [
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("application/vnd.api+json", True),
        ("text/plain", False),
        ("application/x-www-form-urlencoded", False),
        ("text/json+json", False),
    ],
)
def test_a_body_says_that_it_is_json(kind: str, taken: bool) -> None:
    """A web page can send another type across origins without being asked."""

    async def main() -> None:
        reader = BodyReader(Workers("test"), MAX_BYTES)
        if taken:
            assert await read(reader, Call(b"{}", kind=kind)) == 2
        else:
            with pytest.raises(BadRequestError, match="application/json"):
                await read(reader, Call(b"{}", kind=kind))

    asyncio.run(main())


def test_openapi_describes_the_bodies(server: Server) -> None:
    paths = server.client.get("/openapi.json").json()["paths"]
    for path, field in (("/v1/completions", "prompt"), ("/v1/chat/completions", "messages")):
        content = paths[path]["post"]["requestBody"]["content"]["application/json"]
        assert content["schema"]["required"] == [field]
        assert content["schema"]["properties"]["max_tokens"]["anyOf"]
        assert "$ref" not in str(content)
