"""A signal that a thread waits for: handlers do no work, so none can be entered twice."""

import signal
import threading
from collections.abc import Callable
from types import FrameType


class SignalThread:
    """Calls an action after a signal, on a thread of its own; signals meanwhile count as one.

    From construction on the signal is held, in all threads started later and in child processes
    too. Created on the main thread.
    """

    def __init__(self, number: signal.Signals, name: str) -> None:
        self._number = number
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._action: Callable[[], None] | None = None
        self._ending = False
        self._came_early = False
        self._held_before = number in signal.pthread_sigmask(signal.SIG_BLOCK, {number})
        # A thread that existed before, such as a library's, does not hold the signal.
        self._handler_before = signal.signal(number, self._send_on)

    def start(self, action: Callable[[], None]) -> None:
        """A signal that came since construction counts. The action may not raise."""
        self._action = action
        self._thread.start()
        if self._came_early:
            self._send()

    def stop(self) -> None:
        """Wait for an action in progress; from now on the signal has no effect. May be repeated."""
        self._ending = True
        if self._thread.is_alive():
            self._send()
            self._thread.join()

    def release(self) -> None:
        """Stop, and restore the signal's former meaning."""
        self.stop()
        while signal.sigtimedwait({self._number}, 0) is not None:
            continue
        signal.signal(self._number, self._handler_before)
        if not self._held_before:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {self._number})

    def _run(self) -> None:
        assert self._action is not None
        while True:
            signal.sigwait({self._number})
            if self._ending:
                return
            self._action()

    def _send_on(self, number: int, frame: FrameType | None) -> None:
        if self._action is None:
            self._came_early = True
        elif not self._ending:
            self._send()

    def _send(self) -> None:
        if self._thread.ident is not None:
            signal.pthread_kill(self._thread.ident, self._number)
