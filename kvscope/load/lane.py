"""The requests in flight, up to a limit: each a task of its own, their outcomes tallied."""

import asyncio
from collections.abc import Callable

from kvscope.load.client import Client, RequestFailedError
from kvscope.load.report import Tally
from kvscope.load.scenarios import Job

LOST_AFTER_SECONDS = 10.0
"""Time of refused connections without any answer, after which the server counts as gone."""
_FAILURE_PAUSE_SECONDS = 0.5
"""Time that a request with a failed connection keeps its place, or a closed loop would spin."""
_POLL_SECONDS = 0.05
"""Interval at which a changing limit is checked."""


class Lane:
    """Starts jobs; `below` waits for room. One event loop, no locks."""

    def __init__(self, client: Client, tally: Tally, max_in_flight: int) -> None:
        self._client = client
        self._tally = tally
        self.max_in_flight = max_in_flight
        self._tasks: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._silent_since: float | None = None
        self._silent_until = 0.0
        self._bug: BaseException | None = None

    @property
    def in_flight(self) -> int:
        return len(self._tasks)

    @property
    def elapsed_seconds(self) -> float:
        return self._tally.elapsed_seconds

    @property
    def unreachable(self) -> bool:
        """Whether the latest attempts could not connect, with no answer since the first of them."""
        return self._silent_since is not None

    @property
    def server_lost(self) -> bool:
        """Whether no connection could be made for some time, with no answers in that time."""
        return (
            self._silent_since is not None
            and self._silent_until - self._silent_since >= LOST_AFTER_SECONDS
        )

    def launch(self, job: Job) -> None:
        """Never waits: the caller keeps the limit."""
        assert self.in_flight < self.max_in_flight
        task = asyncio.create_task(self._run(job))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def below(self, limit: Callable[[], int]) -> None:
        """Returns once fewer than `limit()` are in flight."""
        while self.in_flight >= limit():
            self._freed.clear()
            try:
                async with asyncio.timeout(_POLL_SECONDS):
                    await self._freed.wait()
            except TimeoutError:
                continue

    def check(self) -> None:
        """Raises a task's error other than a failed request: a bug of ours."""
        if self._bug is not None:
            raise self._bug

    async def cancel(self) -> None:
        """Gives up requests in flight; the server sees closed connections."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.check()

    async def _run(self, job: Job) -> None:
        try:
            exchange = await self._client.send(job, self._retried)
        except asyncio.CancelledError:
            self._tally.cancelled += 1
            raise
        except RequestFailedError as error:
            self._tally.has_failed(error.kind, error.detail)
            job.finished(None)
            self._note_silence(error.kind)
            if error.kind in ("connection", "disconnected"):
                await asyncio.sleep(_FAILURE_PAUSE_SECONDS)
        else:
            self._silent_since = None
            self._tally.succeeded(exchange)
            job.finished(exchange.reply)

    def _note_silence(self, kind: str) -> None:
        if kind == "connection":
            self._silent_until = self.elapsed_seconds
            if self._silent_since is None:
                self._silent_since = self._silent_until
        elif kind not in ("disconnected", "timeout"):
            self._silent_since = None

    def _retried(self) -> None:
        self._silent_since = None
        self._tally.retried += 1

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._freed.set()
        if not task.cancelled() and (error := task.exception()):
            self._bug = error
