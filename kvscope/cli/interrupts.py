"""Ctrl-C and SIGTERM during `kvscope load`: the run ends early, with its report."""

import signal
from typing import Self

from kvscope.output import EXIT_SIGNALLED


class Stop:
    """The first Ctrl-C or SIGTERM ends the run with its report, the second ends it at once."""

    def __init__(self) -> None:
        self._requested = False  # an Event's lock may be held by the thread that is interrupted
        self.exit_code = EXIT_SIGNALLED
        self._previous: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._stop)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def is_set(self) -> bool:
        return self._requested

    def _stop(self, number: int, frame: object) -> None:
        self.exit_code = EXIT_SIGNALLED + number
        self._requested = True
        signal.signal(number, self._previous[number])
