"""A command as our child: signals reach it once each, its exit code is ours, orphans are reaped.

It stays in our process group, so that Ctrl-C, Ctrl-Z and the terminal's input work as without us.
Signals from the terminal reach every process of that group; only those from others are passed on.
SIGUSR1 is not if the command has no handler for it and would end: our own stacks are shown instead.
"""

import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from kvscope.serving.stacks import show_own_stacks
from kvscope_events.stacks import catches, ignores

PASSED_ON = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_WATCHED = frozenset({*PASSED_ON, signal.SIGCHLD, signal.SIGALRM})
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
NOT_FOUND = 127
NOT_EXECUTABLE = 126
BY_SIGNAL = 128
logger = logging.getLogger("kvscope")


@contextmanager
def signals_held() -> Iterator[set[int]]:
    """Inside the block signals wait for `Child.wait`; yields the former mask, for the child.

    Threads started inside block them as well, so that no default action hits them.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignoring it would hide that a child ended
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    try:
        yield {int(number) for number in before}
    finally:
        while signal.sigtimedwait(_WATCHED, 0) is not None:
            continue  # an impatient second Ctrl-C must not change the exit code
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def signal_waiting() -> int | None:
    """The exit code for a signal that came before there was a child; None: no signal came."""
    for number in PASSED_ON:
        waits = number in signal.sigpending()
        if waits and signal.getsignal(number) is not signal.SIG_IGN:
            return BY_SIGNAL + int(number)
    return None


class CommandError(Exception):
    """A command that cannot be started, with the exit code that shells use for it."""

    def __init__(self, problem: str, code: int) -> None:
        super().__init__(problem)
        self.code = code


class Child:
    """Started on construction; raises CommandError. Used inside `signals_held`."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], mask: set[int]) -> None:
        name = command[0]
        try:
            self.pid = os.posix_spawnp(
                name, list(command), environment, setsigmask=mask, setsigdef=_IGNORED_BY_PYTHON
            )
        except FileNotFoundError:
            raise CommandError(f"{name}: command not found", NOT_FOUND) from None
        except OSError as error:
            problem = f"{name}: cannot be executed: {error.strerror}"
            raise CommandError(problem, NOT_EXECUTABLE) from None
        except ValueError as error:  # a null byte in an argument
            raise CommandError(f"{name}: cannot be executed: {error}", NOT_EXECUTABLE) from None

    def handles(self, number: int) -> bool:
        """Whether a signal does anything to the command other than ending it."""
        try:
            return catches(self.pid, number) or ignores(self.pid, number)
        except OSError:  # it has just ended
            return True

    def wait(self, tick_seconds: float, tick: Callable[[], None]) -> int:
        """Wait for the end of the command: its exit code, or 128 + the number of the fatal signal.

        tick: called periodically on this thread.
        """
        # Not sigtimedwait: if we are stopped for longer than its timeout, CPython 3.11 returns a
        # signal that was never sent.
        signal.setitimer(signal.ITIMER_REAL, tick_seconds, tick_seconds)
        try:
            while True:
                found = signal.sigwaitinfo(_WATCHED)
                if found.si_signo == signal.SIGALRM:
                    tick()
                elif found.si_signo != signal.SIGCHLD:
                    self._pass_on(found)
                code = self._reap()  # after a tick as well: signals of one kind may merge
                if code is not None:
                    return code
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _pass_on(self, found: signal.struct_siginfo) -> None:
        # Positive: from the kernel, that is from the terminal, so the child got it as well.
        if found.si_code > 0:
            return
        if found.si_signo == signal.SIGUSR1 and not self.handles(signal.SIGUSR1):
            logger.info(
                "SIGUSR1 is not passed on: it would end the command, which has no handler for it"
            )
            show_own_stacks()
            return
        os.kill(self.pid, found.si_signo)

    def _reap(self) -> int | None:
        """Collect all ended children; as the first process of a container also orphans."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return None
            if pid == self.pid:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else BY_SIGNAL - code
            if pid == 0:
                return None
