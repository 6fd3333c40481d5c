"""`kvscope top` in a real terminal: keys, sizes, signals, and what it leaves behind."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.playback.recorded import record_load
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
def url(stage: Stage) -> Iterator[str]:
    with served(llama=stage.exporter, qwen=stage.exporter) as url:
        yield url


@pytest.fixture
def small() -> Iterator[Screen]:
    with screen(80, 24) as found:
        yield found


def test_keys_change_what_is_shown(small: Screen, url: str) -> None:
    small.run(*top(url, "--interval", "0.5"))
    small.wait("1 Preemptions")
    lines = small.lines()
    assert len(lines[0]) <= 80
    assert "q quit  ? help  tab panel" in lines[23]
    assert "38;5;208" in small.colours()
    small.press("Tab")
    small.wait_without("1 Preemptions")
    small.wait("2 Sequences")
    small.press("BTab")
    small.press("s")
    small.wait("ago▾")
    small.press("s")
    small.wait("recomputed▾")
    small.press("/")
    small.wait("filter: ▏")
    small.press("n", "o", "n", "e")
    small.wait("nothing has 'none' in it")
    small.press("Escape")
    small.wait_without("nothing has")
    small.press("?")
    small.wait("The next panel comes first.")
    small.press("?")
    small.wait("1 Preemptions")
    small.wait(f"{url} llama")
    small.press("e")
    small.wait(f"{url} qwen")
    small.press("Space")
    small.wait("FROZEN at")
    small.press("Space")
    small.wait("every 0.5 s")
    small.press("q")
    small.wait_without("q quit")
    small.shell("echo status $?")
    text = small.wait("status 0")
    assert "1 Preemptions" not in text, "the screen before is back"


@pytest.mark.nightly
def test_it_follows_the_size_of_the_terminal_whatever_is_exported(small: Screen, url: str) -> None:
    small.run("env", "COLUMNS=80", "LINES=24", *top(url))
    small.wait("1 Preemptions")
    small.resize(200, 60)
    small.wait("7 Why")
    assert "q quit" in small.lines()[59]
    small.resize(60, 16)
    small.wait_without("7 Why")
    assert "q quit" in small.lines()[15]


@pytest.mark.nightly
def test_without_colours(small: Screen, url: str) -> None:
    small.run("env", "NO_COLOR=1", *top(url))
    small.wait("1 Preemptions")
    assert "38;5" not in small.colours()
    assert "█ active" in small.text()


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.nightly),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.nightly),
    ],
)
def test_a_signal_restores_the_terminal(
    small: Screen, url: str, number: signal.Signals, status: int
) -> None:
    small.shell("stty -g > /dev/null; before=$(stty -g)")
    small.run(*top(url))
    small.wait("1 Preemptions")
    if number == signal.SIGINT:
        small.press("C-c")
    else:
        os.kill(small.pid_of("kvscope top"), number)
    small.wait_without("q quit")
    small.shell('echo status $? $([ "$before" = "$(stty -g)" ] && echo restored)')
    small.wait(f"status {status} restored")


def test_the_shell_gets_the_terminal_while_it_is_stopped(small: Screen, url: str) -> None:
    small.shell("before=$(stty -g)")
    small.run(*top(url))
    small.wait("1 Preemptions")
    small.press("C-z")
    small.wait("Stopped")
    assert "1 Preemptions" not in small.text()
    small.shell('[ "$before" = "$(stty -g)" ] && echo "restored"; echo typed')
    small.wait("\nrestored")
    small.shell("fg")
    small.wait("1 Preemptions")
    small.press("2")
    small.wait_without("1 Preemptions")
    small.press("q")
    small.wait_without("q quit")
    small.shell("echo status $?")
    small.wait("status 0")


@pytest.mark.nightly
def test_an_error_restores_the_terminal(small: Screen, url: str) -> None:
    small.shell("before=$(stty -g)")
    program = (
        "from kvscope.top import screen; screen.frame = lambda *_: 1 / 0; "
        "from kvscope.cli.app import main; main()"
    )
    small.run(top()[0], "-c", program, "top", url)
    small.wait("ZeroDivisionError: division by zero")
    small.shell('[ "$before" = "$(stty -g)" ] && echo "restored"; echo typed')
    small.wait("\nrestored")


@pytest.mark.nightly
def test_a_recording_is_paused_stepped_and_played(
    small: Screen, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("top") / "load.kvsr"
    record_load(path, seconds=3, seed=1)
    small.run(*top(str(path), "--at", "+1s", "--interval", "0.5"))
    text = small.wait("paused")
    assert "+ speed  m mark" in text
    small.press("]")
    small.wait("at 100 %, paused")
    small.press("[")
    small.wait_without("at 100 %")
    small.press("-")
    small.wait("playing 0.5x")
    small.press("Space")
    small.wait("paused")


@pytest.mark.nightly
def test_a_file_that_is_no_recording_leaves_the_terminal_alone(
    small: Screen, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.kvsr"
    bad.write_bytes(b"nothing")
    small.run(*top(str(bad)))
    small.wait("kvscope: ")
    small.shell("echo status $?")
    small.wait("status 2")
