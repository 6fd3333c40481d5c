"""SIGUSR1 shows where the threads of a vLLM process are, instead of ending it.

By default it ends a process, while many servers write their stacks. A handler that vLLM or the
operator installs takes precedence, before or after ours.
"""

import contextlib
import signal
import sys
import threading
from types import FrameType

from kvscope_events.stacks import answer_held_signal, write_stacks

_under_way = False


def answer_signals() -> None:
    """Install the handlers in this process and those that it forks; never raises."""
    with contextlib.suppress(Exception):  # a diagnosis that is not there must not end a server
        answer_held_signal()
        on_main = threading.current_thread() is threading.main_thread()
        if on_main and signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
            signal.signal(signal.SIGUSR1, _show)
            signal.siginterrupt(signal.SIGUSR1, False)  # native calls are not interrupted


def _show(number: int, frame: FrameType | None) -> None:
    """Runs on vLLM's main thread, so it waits for nothing. What comes meanwhile is ignored."""
    global _under_way
    if _under_way or sys.__stderr__ is None:
        return
    _under_way = True
    try:
        with contextlib.suppress(Exception):  # as above
            write_stacks(0.0)
    finally:
        _under_way = False
