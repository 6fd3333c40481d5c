"""Shows where every thread is: on SIGUSR1, and when a fatal signal ends the process."""

import faulthandler
import signal
import sys

from kvscope.serving.signal_thread import SignalThread
from kvscope_events.stacks import STDERR, answer_held_signal, write_stacks

READER_SECONDS = 1.0
"""Time for a reader of our log that has stopped reading."""
_threads: list[SignalThread] = []


def show_stacks() -> None:
    """Make SIGUSR1 write the Python stacks of all threads to standard error.

    A thread of ours reads them while holding the interpreter's lock; if native code never releases
    that, HELD_SIGNAL writes them without it. So does a process that dies of SIGSEGV, SIGFPE,
    SIGABRT, SIGBUS or SIGILL.
    """
    if sys.__stderr__ is None or _threads:  # closed: its number may become that of a socket
        return
    show_last_stacks()
    _threads.append(SignalThread(signal.SIGUSR1, "kvscope-stacks"))
    _threads[0].start(show_own_stacks)


def show_last_stacks() -> None:
    """Only on HELD_SIGNAL and at a fatal signal: for a command that waits for SIGUSR1 itself."""
    if sys.__stderr__ is not None:
        faulthandler.enable(file=STDERR)
        answer_held_signal()


def show_own_stacks() -> None:
    """Write our own stacks now, once."""
    try:
        write_stacks(READER_SECONDS)
    except OSError:  # standard error is gone: nowhere to report it
        return
