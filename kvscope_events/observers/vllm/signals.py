"""SIGUSR1 shows where the threads of a vLLM process are, instead of ending it.

By default it ends a process, and much else that serves writes its stacks then. A handler of vLLM's
or of the operator's own stays, whichever comes first.
"""

import contextlib
import signal
import sys
import threading
from types import FrameType

from kvscope_events.stacks import answer_held_signal, write_stacks

_under_way = False


def answer_signals() -> None:
    """For this process and those that it forks; never raises."""
    with contextlib.suppress(Exception):  # a diagnosis that is not there must not end a server
        answer_held_signal()
        on_main = threading.current_thread() is threading.main_thread()
        if on_main and signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
            signal.signal(signal.SIGUSR1, _show)
            signal.siginterrupt(signal.SIGUSR1, False)  # calls of native code go on


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
