"""`kvscope top` in a real terminal: a server that goes and returns, signals, and what is left."""

import os
import signal
import socket
from collections.abc import Iterator

import pytest

from tests.top.served import served
from tests.top.tmux import Screen, screen, top
from tests.why.stage import Stage, chat, play

pytestmark = [pytest.mark.tmux, pytest.mark.slow]


@pytest.fixture(scope="module")
def stage() -> Stage:
    stage = Stage(num_blocks=90)
    play(stage, chat(1, 10, rate=6.0, users=12), 10)
    return stage


@pytest.fixture(scope="module")
def port() -> int:
    """One that a server gives up and takes again."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture
def small() -> Iterator[Screen]:
    with screen(80, 24) as found:
        yield found


def test_a_server_is_watched_until_q_is_pressed(small: Screen, stage: Stage, port: int) -> None:
    url = f"http://127.0.0.1:{port}"
    small.shell("before=$(stty -g)")
    with served(port=port, llama=stage.exporter):
        small.run("env", "COLUMNS=100", "LINES=50", *top(url, "--interval", "0.5"))
        small.wait("━1 Preemptions")
        lines = small.lines()
        assert lines[0].startswith("✔ Nothing is wrong")
        assert max(map(len, lines)) <= 80
        assert "q quit ? help" in lines[23]
        assert "38;5;208" in small.colours()
        small.press("Tab")
        small.wait("━2 Sequences")
        small.resize(200, 50)
        small.wait("◀ you are here")
        small.resize(80, 24)
        small.wait("━2 Sequences", without="◀ you are here")
        small.press("C-z")
        small.wait("Stopped")
        small.wait_for_shell()
        small.shell('[ "$before" = "$(stty -g)" ] && echo "restored"; echo typed')
        small.wait("\nrestored")
        small.shell("fg")
        small.wait("━2 Sequences")
    small.wait("No answer since")
    small.wait("OLD, of")
    with served(port=port, llama=stage.exporter):
        small.wait("back since")
        small.press("q")
        small.wait_for_shell()
    small.shell('echo status $? $([ "$before" = "$(stty -g)" ] && echo restored)')
    small.wait("status 0 restored")
    assert "1 Preemptions" not in small.text(), "the screen before is back"


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.nightly),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.nightly),
    ],
)
def test_a_signal_restores_the_terminal(
    small: Screen, stage: Stage, number: signal.Signals, status: int
) -> None:
    small.shell("before=$(stty -g)")
    with served(llama=stage.exporter) as url:
        small.run("env", "NO_COLOR=1", *top(url))
        small.wait("━1 Preemptions")
        assert "38;5" not in small.colours()
        assert "█ active" in small.text()
        os.kill(small.pid_of("kvscope top"), number)
        small.wait_for_shell()
    small.shell('echo status $? $([ "$before" = "$(stty -g)" ] && echo restored)')
    small.wait(f"status {status} restored")
