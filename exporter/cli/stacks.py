"""Where every thread is: on SIGUSR1, and when the process dies of a fatal signal."""

import faulthandler
import signal
import sys

STDERR = 2


def show_stacks() -> None:
    """From now on SIGUSR1 writes the Python stacks of all threads to standard error.

    It works while the interpreter is held by a call that does not return, since no Python code runs
    for it. A process that dies of SIGSEGV, SIGFPE, SIGABRT, SIGBUS or SIGILL writes them as well.
    """
    if sys.__stderr__ is None:  # closed: its number may become that of a socket
        return
    faulthandler.enable(file=STDERR)
    faulthandler.register(signal.SIGUSR1, file=STDERR, all_threads=True, chain=False)


def show_last_stacks() -> None:
    """Only when the process dies: for a command that passes SIGUSR1 on."""
    if sys.__stderr__ is not None:
        faulthandler.enable(file=STDERR)
