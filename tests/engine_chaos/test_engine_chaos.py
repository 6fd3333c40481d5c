"""The chaos program, briefly: as a process of its own, whose threads and files can be counted."""

import subprocess
import sys

import pytest

from tests.support.process import ROOT, completed


def chaos(*options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tools.chaos", "engine", *options]
    return subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["recompute", "swap", "auto"])
def test_calls_that_are_left_alone_get_their_tokens_and_nothing_is_left_behind(mode: str) -> None:
    ended = chaos("--seconds", "1", "--calls", "60", "--mode", mode)
    assert ended.returncode == 0, ended.stdout


def test_a_mode_that_there_is_not_is_refused() -> None:
    ended = completed("engine", "--mode", "nonsense", module="tools.chaos")
    assert ended.returncode == 2, ended.stderr
