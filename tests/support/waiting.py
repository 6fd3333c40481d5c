"""Waiting for what another thread or process does, with an end."""

import time
from collections.abc import Callable

WAIT_SECONDS = 60.0


def wait_for(
    condition: Callable[[], object], what: str = "it never happened", seconds: float = WAIT_SECONDS
) -> None:
    """Until the condition holds; fails the test with `what` if it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain: {what}"
        time.sleep(0.002)
