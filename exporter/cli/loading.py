"""A slow call on a daemon thread: the event loop answers meanwhile, and a signal ends it."""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Loading(Generic[_T]):
    """The call begins when this is made."""

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
        """Wait for the call's result, or raise what it raised."""
        return await asyncio.wrap_future(self._future)

    def _run(self, load: Callable[[], _T]) -> None:
        try:
            result = load()
        except BaseException as error:
            self._future.set_exception(error)
        else:
            self._future.set_result(result)


def leave_at_once() -> None:
    """End the process with exit code 0 while a model still loads.

    Nothing can interrupt that thread inside torch, and a finalizing interpreter would crash it.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
