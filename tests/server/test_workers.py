"""Workers: clients take turns, what waits is bounded, and no client loses a thread."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from kvscope_engine.server.clients import MAX_WAITING, Workers, client_of
from kvscope_engine.server.errors import BusyError


async def gathered(*runs: Coroutine[Any, Any, Any]) -> list[Any]:
    return await asyncio.gather(*runs, return_exceptions=True)


def test_clients_take_turns() -> None:
    done: list[str] = []

    async def main() -> None:
        workers = Workers("test", threads=1)
        await gathered(
            *(workers.run("greedy", lambda: done.append("greedy")) for _ in range(10)),
            workers.run("modest", lambda: done.append("modest")),
        )
        workers.close()

    asyncio.run(main())
    assert len(done) == 11
    assert done.index("modest") <= 2, "it waits for what runs and for one other"


def test_too_much_waiting_work_of_one_client_is_refused_while_others_pass() -> None:
    go = threading.Event()

    async def main() -> tuple[list[Any], Any]:
        workers = Workers("test", threads=1)
        runs = [
            asyncio.ensure_future(workers.run("greedy", go.wait)) for _ in range(MAX_WAITING + 2)
        ]
        await asyncio.sleep(0.05)
        modest = asyncio.ensure_future(workers.run("modest", lambda: "done"))
        await asyncio.sleep(0)
        go.set()
        results = await gathered(*runs)  # type: ignore[arg-type]
        result = await modest
        workers.close()
        return results, result

    results, modest = asyncio.run(main())
    assert modest == "done"
    assert [type(r) for r in results].count(BusyError) == 1


def test_a_caller_that_leaves_gives_its_thread_on() -> None:
    go = threading.Event()

    async def main() -> str:
        workers = Workers("test", threads=1)
        first = asyncio.ensure_future(workers.run("a", go.wait))
        await asyncio.sleep(0)
        leaving = asyncio.ensure_future(workers.run("b", lambda: "left"))
        staying = asyncio.ensure_future(workers.run("c", lambda: "stayed"))
        await asyncio.sleep(0)
        leaving.cancel()
        first.cancel()
        go.set()
        result = await asyncio.wait_for(staying, 5)
        again = await asyncio.wait_for(workers.run("d", lambda: "again"), 5)
        assert again == "again"
        workers.close()
        return result

    assert asyncio.run(main()) == "stayed"


def test_errors_reach_the_caller() -> None:
    async def main() -> None:
        workers = Workers("test")
        with pytest.raises(ZeroDivisionError):
            await workers.run("a", lambda: 1 / 0)
        workers.close()

    asyncio.run(main())


def test_a_client_is_its_key_or_its_address() -> None:
    assert client_of({"type": "http", "client": ("10.0.0.1", 5)}) == "10.0.0.1"
    assert client_of({"type": "http", "client": ("10.0.0.1", 5), "kvscope.client": "k"}) == "k"
    assert client_of({"type": "http", "client": None}) == ""
