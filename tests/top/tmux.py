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
        command = ["tmux", "-S", str(self._socket), *arguments]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=SECONDS
        ).stdout

    def text(self) -> str:
        """The present content of the screen."""
        return self.tmux("capture-pane", "-p")

    def lines(self) -> list[str]:
        return self.text().split("\n")

    def colours(self) -> str:
        """The same with its escape sequences."""
        return self.tmux("capture-pane", "-p", "-e")

    def press(self, *keys: str) -> None:
        """Keys by tmux's names, or characters."""
        self.tmux("send-keys", *keys)

    def shell(self, line: str) -> None:
        self.tmux("send-keys", "-l", line)
        self.press("Enter")

    def run(self, *command: str) -> None:
        self.shell(shlex.join(command))

    def wait(self, wanted: str, without: str = "\0") -> str:
        """The content of the screen, once it has that text, and not the other."""
        return self._wait(lambda text: wanted in text and without not in text, wanted)

    def wait_for_shell(self) -> None:
        """Keys that are typed before a command has left the terminal are lost."""
        self._wait(lambda text: text.rstrip().endswith("ready$"), "the shell")

    def _wait(self, is_so: Callable[[str], bool], what: str) -> str:
        try:
            wait_for(lambda: is_so(self.text()), what, SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}; on the screen:\n{self.colours()}") from None
        return self.text()

    def resize(self, width: int, height: int) -> None:
        self.tmux("resize-window", "-x", str(width), "-y", str(height))

    def pid_of(self, pattern: str) -> int:
        """The process of that command line below the shell."""
        shell = self.tmux("display", "-p", "#{pane_pid}").strip()
        command = ["pgrep", "-P", shell, "-f", pattern]
        return int(subprocess.run(command, capture_output=True, check=True).stdout.split()[0])


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
