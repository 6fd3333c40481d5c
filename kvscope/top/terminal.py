"""The terminal that keys are read from: without line buffering, and restored whatever happens."""

import os
import select
import signal
import sys
import termios
import tty
from types import FrameType
from typing import Any, Self

from kvscope.top.keys import decoded

_MOST_BYTES = 1024
"""Read at once; what is pasted beyond that comes with the next read."""
_ESCAPE_SECONDS = 0.05
"""Within this time the rest of a sequence follows its escape."""
_NOTED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGTSTP,
    signal.SIGCONT,
    signal.SIGWINCH,
)


class Terminal:
    """Standard input without line buffering or echo, and the signals that concern a terminal.

    Restored on the way out, whatever the reason. Signals are noted, and wake `keys`.
    """

    def __init__(self) -> None:
        self._in = sys.stdin.fileno()
        self._saved: list[Any] | None = None
        self._waking, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._previous: dict[int, Any] = {}
        self.received: list[int] = []

    def __enter__(self) -> Self:
        for number in _NOTED:
            self._previous[number] = signal.signal(number, self._note)
        self.take()
        return self

    def __exit__(self, *exception: object) -> None:
        self.give_back()
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        os.close(self._wake)
        os.close(self._waking)

    def take(self) -> None:
        """Keys come at once; Ctrl-C and Ctrl-Z still are signals."""
        if self._saved is None:
            self._saved = termios.tcgetattr(self._in)
        tty.setcbreak(self._in, termios.TCSADRAIN)

    def give_back(self) -> None:
        """The terminal as it was."""
        if self._saved is not None:
            termios.tcsetattr(self._in, termios.TCSADRAIN, self._saved)
            self._saved = None

    def wake(self) -> None:
        """Let `keys` return; from any thread."""
        try:
            os.write(self._wake, b".")
        except BlockingIOError:
            return  # it is full of earlier ones, of which one is enough

    def keys(self, seconds: float) -> list[str]:
        """Keys that were pressed, as soon as there is one, or `wake` or a signal ends the wait."""
        ready, _, _ = select.select([self._in, self._waking], [], [], seconds)
        if self._waking in ready:
            os.read(self._waking, _MOST_BYTES)
        if self._in not in ready:
            return []
        typed = os.read(self._in, _MOST_BYTES)
        if not typed:  # the terminal has gone
            self.received.append(signal.SIGHUP)
        if typed.endswith(b"\x1b") and select.select([self._in], [], [], _ESCAPE_SECONDS)[0]:
            typed += os.read(self._in, _MOST_BYTES)
        return decoded(typed)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)
        self.wake()
