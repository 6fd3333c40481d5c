"""Threads for work that would hold up the event loop; clients take turns in a bounded queue.

A client with a thousand large requests delays another's by no more than the work in progress.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from starlette.types import Scope

from kvscope_events.vocabulary import CLIENT_KEY

DEFAULT_THREADS = 2
"""Threads of one kind of work. More would take cores from the engine."""
MAX_WAITING = 64
"""Pieces of work of one client that wait for a thread."""
MAX_WAITING_IN_ALL = 512
"""Pieces of work of all clients that wait; each holds a decoded request."""

_T = TypeVar("_T")


class BusyError(Exception):
    """Too much work of this kind is already waiting."""

    def __init__(self) -> None:
        super().__init__("too many large requests wait already: try again later")


def client_of(scope: Scope) -> str:
    """The client of a request: its key, else its address."""
    known = scope.get(CLIENT_KEY)
    if isinstance(known, str):
        return known
    address = scope.get("client")
    return str(address[0]) if address else ""


class Workers:
    """A few threads. All methods belong to the event loop's thread."""

    def __init__(self, name: str, threads: int = DEFAULT_THREADS) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._num_free = threads
        self._num_waiting = 0
        self._turns: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def run(self, client: str, work: Callable[[], _T]) -> _T:
        """The result of `work`, on a thread, when it is this client's turn.

        Raises BusyError if too much is waiting, and whatever `work` raises. Work that has begun
        continues when its caller is cancelled.
        """
        if self._num_free:
            self._num_free -= 1
        else:
            await self._turn(client)
        event_loop = asyncio.get_running_loop()
        future = self._threads.submit(work)
        future.add_done_callback(lambda done: self._when_done(event_loop, done))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """End the threads once they are idle."""
        self._threads.shutdown(wait=False)

    async def _turn(self, client: str) -> None:
        waiting = self._turns.setdefault(client, deque())
        if len(waiting) >= MAX_WAITING or self._num_waiting >= MAX_WAITING_IN_ALL:
            raise BusyError
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        self._num_waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn came, but it has left
                self._next()
            raise

    def _when_done(self, event_loop: asyncio.AbstractEventLoop, done: Future[_T]) -> None:
        """Called on the worker's thread."""
        try:
            event_loop.call_soon_threadsafe(self._next)
        except RuntimeError:  # closed: the server has ended, and nothing is waiting
            if not event_loop.is_closed():
                raise

    def _next(self) -> None:
        """Give the thread that has become free to the next client in turn."""
        while self._turns:
            client, waiting = self._turns.popitem(last=False)
            turn = waiting.popleft() if waiting else None
            if waiting:
                self._turns[client] = waiting  # to the end of the round
            if turn is None:
                continue
            self._num_waiting -= 1
            if not turn.done():
                turn.set_result(None)
                return
        self._num_free += 1
