"""A terminal of any size that a test types into and reads: a tmux with a server of its own."""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.repo.checkout import ROOT
from tests.support.waiting import wait_for

SECONDS = 60.0


class Screen:
    """One pane, in which a shell runs."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), *arguments],
            check=True,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        return done.stdout

    def lines(self) -> list[str]:
        """The present content of the screen."""
        return self.tmux("capture-pane", "-p").split("\n")

    def text(self) -> str:
        return "\n".join(self.lines())

    def colours(self) -> str:
        """The same with its escape sequences."""
        return self.tmux("capture-pane", "-p", "-e")

    def press(self, *keys: str) -> None:
        """Keys by tmux's names, or characters."""
        self.tmux("send-keys", *keys)

    def run(self, *command: str) -> None:
        """Type a command line."""
        self.tmux("send-keys", "-l", shlex.join(command))
        self.press("Enter")

    def shell(self, line: str) -> None:
        self.tmux("send-keys", "-l", line)
        self.press("Enter")

    def wait(self, wanted: str, seconds: float = SECONDS) -> str:
        """The content of the screen, once it has that text."""
        return self._wait(lambda text: wanted in text, wanted, seconds)

    def wait_without(self, unwanted: str) -> str:
        return self._wait(lambda text: unwanted not in text, f"no {unwanted}", SECONDS)

    def _wait(self, is_so: Callable[[str], bool], what: str, seconds: float) -> str:
        try:
            wait_for(lambda: is_so(self.text()), what, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; on the screen:\n{self.colours()}") from None
        return self.text()

    def resize(self, width: int, height: int) -> None:
        self.tmux("resize-window", "-x", str(width), "-y", str(height))

    def pid_of(self, pattern: str) -> int:
        """The process of that command line below the shell."""
        shell = self.tmux("display", "-p", "#{pane_pid}").strip()
        found = subprocess.run(
            ["pgrep", "-P", shell, "-f", pattern], capture_output=True, text=True, check=True
        )
        return int(found.stdout.split()[0])


@contextmanager
def screen(width: int, height: int) -> Iterator[Screen]:
    """A pane with a plain shell in the checkout."""
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "tmux"
        ours = ("KVSCOPE_", "TMUX", "NO_COLOR")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        environment |= {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        profile = Path(folder) / "bashrc"
        profile.write_text("PS1='ready$ '\n")
        subprocess.run(
            [
                *("tmux", "-S", str(socket), "-f", "/dev/null", "new-session", "-d"),
                *("-x", str(width), "-y", str(height), "-c", str(ROOT)),
                f"bash --rcfile {profile} -i",
            ],
            check=True,
            env=environment,
            timeout=SECONDS,
        )
        found = Screen(socket)
        try:
            found.wait("ready$")
            yield found
        finally:
            found.tmux("kill-server")


def top(*arguments: str) -> Sequence[str]:
    return [sys.executable, "-m", "kvscope", "top", *arguments]
