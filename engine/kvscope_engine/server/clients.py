"""Limits for one client: calls in progress and their tokens, and its turn on the threads.

A client with a thousand large requests delays another's by no more than the work in progress. The
table of shares holds a client while it has a call in progress, so it is no longer than the calls.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from starlette.types import Scope

from kvscope_engine.request import Request
from kvscope_engine.server.errors import BadRequestError, BusyError, ClientLimitError
from kvscope_events.vocabulary import CLIENT_KEY

DEFAULT_THREADS = 2
"""Threads of one kind of work. More would take cores from the engine."""
MAX_WAITING = 64
"""Pieces of work of one client that wait for a thread."""
MAX_WAITING_IN_ALL = 512
"""Pieces of work of all clients that wait; each holds a decoded request."""

_T = TypeVar("_T")


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


@dataclass(slots=True)
class _UnderWay:
    calls: int = 0
    tokens: int = 0


class ClientLimits:
    """Counts calls in progress by client. None: no limit."""

    def __init__(self, max_requests: int | None, max_tokens: int | None) -> None:
        self._max_requests = max_requests
        self._max_tokens = max_tokens
        self._clients: dict[str, _UnderWay] = {}

    @property
    def num_clients(self) -> int:
        """Clients with a call in progress."""
        return len(self._clients)

    def enter(self, client: str) -> "ClientShare":
        """A call begins; it ends with the share's `close`. Raises ClientLimitError."""
        under_way = self._clients.get(client) or _UnderWay()
        if self._max_requests is not None and under_way.calls >= self._max_requests:
            raise ClientLimitError(
                f"{under_way.calls} calls of this client are under way, the limit is "
                f"{self._max_requests}"
            )
        self._clients[client] = under_way
        under_way.calls += 1
        return ClientShare(self, client)

    def take(self, client: str, tokens: int) -> None:
        """Reserve tokens that a call may take. Raises ClientLimitError or, if too many,
        BadRequestError."""
        limit, under_way = self._max_tokens, self._clients[client]
        if limit is not None and tokens > limit:
            raise BadRequestError(
                "max_tokens",
                f"max_tokens: the call may take {tokens} tokens, prompt and answers together, but "
                f"a client's limit is {limit}",
                reason="client_limit",
            )
        if limit is not None and under_way.tokens + tokens > limit:
            raise ClientLimitError(
                f"calls of this client may still take {under_way.tokens} tokens, this one "
                f"{tokens}; the limit is {limit}"
            )
        under_way.tokens += tokens

    def leave(self, client: str, tokens: int) -> None:
        """A call has ended."""
        under_way = self._clients[client]
        under_way.calls -= 1
        under_way.tokens -= tokens
        if not under_way.calls:
            del self._clients[client]


class ClientShare:
    """One call's part of its client's limits.

    As a context it is closed only by an error: an answer continues after the function that began
    it, and closes it at its end.
    """

    def __init__(self, limits: ClientLimits, client: str) -> None:
        self.client = client
        self._limits = limits
        self._tokens = 0
        self._open = True

    def __enter__(self) -> "ClientShare":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.close()

    def take(self, request: Request) -> None:
        """Count what the call may take. Raises like `ClientLimits.take`."""
        tokens = request.prompt_tokens + sum(
            sequence.sampling.max_tokens for sequence in request.sequences
        )
        self._limits.take(self.client, tokens)
        self._tokens += tokens

    def close(self) -> None:
        """The call has ended. Idempotent."""
        if self._open:
            self._open = False
            self._limits.leave(self.client, self._tokens)
