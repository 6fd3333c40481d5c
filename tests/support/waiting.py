"""Waiting for what another thread or process does, with an end."""

import threading
import time
from collections.abc import Callable, Collection

WAIT_SECONDS = 60.0
FIRST_PAUSE, LONGEST_PAUSE = 0.002, 0.05
"""Seconds between two looks. A look may cost more than what is waited for has to do: a request,
say, that the server has to answer as well."""


def wait_for(
    condition: Callable[[], object], what: str = "it never happened", seconds: float = WAIT_SECONDS
) -> None:
    """Until the condition holds; fails the test with `what` if it never does."""
    deadline = time.monotonic() + seconds
    pause = FIRST_PAUSE
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain: {what}"
        time.sleep(pause)
        pause = min(pause * 1.1, LONGEST_PAUSE)


def started_since(before: Collection[threading.Thread]) -> list[str]:
    """Names of the threads that were started since and still run; those of tests before this one
    may end meanwhile."""
    return [thread.name for thread in threading.enumerate() if thread not in before]
