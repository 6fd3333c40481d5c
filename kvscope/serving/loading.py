"""A slow call on a daemon thread: the event loop keeps answering, and a signal ends the wait."""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

_T = TypeVar("_T")


class BackgroundCall(Generic[_T]):
    """Starts the call on construction."""

    def __init__(self, load: Callable[[], _T]) -> None:
        self._future: Future[_T] = Future()
        self._future.set_running_or_notify_cancel()  # a cancelled waiter leaves the thread alone
        self._thread = threading.Thread(
            target=self._run, args=(load,), name="kvscope-load", daemon=True
        )
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    async def result(self) -> _T:
        """Wait for the call's result, or raise its exception."""
        return await asyncio.wrap_future(self._future)

    def _run(self, load: Callable[[], _T]) -> None:
        try:
            result = load()
        except BaseException as error:
            self._future.set_exception(error)
        else:
            self._future.set_result(result)


def leave_at_once(code: int) -> None:
    """End the process while a model is still loading, or a step has not ended.

    Their threads cannot be interrupted inside torch, and would crash in a finalizing interpreter.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
