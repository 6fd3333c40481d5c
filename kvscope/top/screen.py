"""The screen: draws a frame whenever something has changed, and does what keys and signals ask for.

What libraries log meanwhile would tear the screen; it is printed when the screen is left.
"""

import logging
import os
import signal
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.live import Live
from rich.text import Text

from kvscope.output import EXIT_SIGNALLED, LineFormatter
from kvscope.replaying.player import MAX_SPEED, Player
from kvscope.top.follower import Follower, Seen
from kvscope.top.frame import frame, sortable
from kvscope.top.keys import Action
from kvscope.top.situation import situation_of, watched
from kvscope.top.terminal import Terminal
from kvscope.top.view import View

_JUMP_NS = 10 * 10**9
_REDRAW_SECONDS = 1.0
"""A resize that no signal reports is noticed within this time."""
_MAX_LOG_LINES = 20
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Held(logging.Handler):
    """The last log lines."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: deque[str] = deque(maxlen=_MAX_LOG_LINES)
        self.setFormatter(LineFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


class Screen:
    """Shows followers until a key or a signal ends it."""

    def __init__(
        self, followers: Sequence[Follower], view: View, interval: float, player: Player | None
    ) -> None:
        self._followers = followers
        self._view = view
        self._interval = interval
        self._player = player
        self._console = Console(highlight=False)
        self._frozen: list[Seen] | None = None
        self._live: Live | None = None

    def run(self, terminal: Terminal) -> int:
        """The exit status."""
        with _logs_held(), terminal:
            for follower in self._followers:
                follower.start()
            try:
                self._enter()
                return self._show(terminal)
            finally:
                self._leave()
                for follower in self._followers:
                    follower.end()

    def _show(self, terminal: Terminal) -> int:
        while True:
            self._draw()
            names = terminal.keys(_REDRAW_SECONDS)
            received, terminal.received = terminal.received, []
            for number in received:
                if number in _ENDS:
                    return EXIT_SIGNALLED + number
                if number == signal.SIGTSTP:
                    self._suspend(terminal)
                elif number == signal.SIGCONT:  # stopped by SIGSTOP, which lets nothing be restored
                    self._leave()
                    terminal.take()
                    self._enter()
            for name in names:
                if self._press(name) == "quit":
                    return 0

    def _suspend(self, terminal: Terminal) -> None:
        """Give the terminal back to the shell; returns when the shell resumes us."""
        self._leave()
        terminal.give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        terminal.take()
        terminal.received = [n for n in terminal.received if n != signal.SIGCONT]
        self._enter()

    def _enter(self) -> None:
        self._live = Live(
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def _leave(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self) -> None:
        self._measure()
        width, height = self._console.size
        lines = frame(self._places(), self._view, width, height, self._interval)
        assert self._live is not None
        self._live.update(Text("\n", no_wrap=True, end="").join(lines), refresh=True)

    def _measure(self) -> None:
        """Take the size of the terminal. A console prefers COLUMNS and LINES, which do not change
        once they are exported."""
        with suppress(OSError):  # the terminal has gone, and its signal follows
            size = os.get_terminal_size(sys.stdout.fileno())
            if all(size):
                self._console.size = size

    def _places(self) -> list[Seen]:
        """The present state of all places, or that in which they were frozen."""
        if not self._view.frozen:
            self._frozen = None
        elif self._frozen is None:
            self._frozen = [follower.seen for follower in self._followers]
        return self._frozen or [follower.seen for follower in self._followers]

    def _press(self, name: str) -> Action | None:
        engines = watched(self._places())
        columns = {}
        if engines:
            situation = situation_of(engines, self._view.engine)
            columns = sortable(situation, self._view.panels, self._console.width)
        action = self._view.press(name, [each.engine.key for each in engines], columns)
        if action is not None and self._player is not None:
            control(self._player, action)
            for follower in self._followers:
                follower.read_now()
        return action


def control(player: Player, action: Action) -> None:
    """Move a recording."""
    status = player.status()
    at_ns = round(status.at * 1e9)
    if action == "freeze" and status.playing:
        player.pause()
    elif action == "freeze":
        if status.at >= status.ends:
            player.seek(player.file.begins_ns)
        player.play(status.speed)
    elif action in ("faster", "slower"):
        player.play(min(MAX_SPEED, status.speed * (2.0 if action == "faster" else 0.5)))
    elif action in ("step", "step_back"):
        player.step(1 if action == "step" else -1)
    elif action in ("jump", "jump_back"):
        player.seek(at_ns + (_JUMP_NS if action == "jump" else -_JUMP_NS))
    elif action == "mark":
        later = [mark for mark, *_ in status.marks if mark > status.at + 1e-6]
        if later:
            player.seek(round(later[0] * 1e9))


@contextmanager
def _logs_held() -> Iterator[None]:
    """Log lines are printed afterwards instead."""
    held, root = _Held(), logging.getLogger()
    before = root.handlers[:]
    root.handlers = [held]
    try:
        yield
    finally:
        root.handlers = before
        errors = Console(stderr=True, highlight=False)
        with suppress(OSError):  # the terminal has gone
            for line in held.lines:
                errors.print(Text(line))
