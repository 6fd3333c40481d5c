"""Standard output that is not read, or that takes nothing more: one line or none, no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo.checkout import ROOT

pytestmark = pytest.mark.nightly

FULL = Path("/dev/full")
PLAN = ("plan", "--layers", "48", "--kv-heads", "4", "--head-dim", "128")
DOCTOR = ("doctor", "http://127.0.0.1:9", "--timeout", "0.1")
COMMANDS = [
    pytest.param(
        list(arguments), id=" ".join(arguments), marks=pytest.mark.nightly if nightly else ()
    )
    for arguments, nightly in (
        (("--help",), False),
        (("--version",), True),
        (
            (
                "docs",
                "metrics",
            ),
            False,
        ),
        (("docs", "metrics", "--servers"), True),
        (PLAN, False),
        ((*PLAN, "-o", "json"), True),
        (DOCTOR, True),
        ((*DOCTOR, "-o", "json"), False),
    )
]
"""A command is nightly if its neighbour writes in the same way."""


def command(arguments: list[str]) -> list[str]:
    return [sys.executable, "-W", "error", "-P", "-m", "kvscope", *arguments]


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_full_disk_is_one_line(arguments: list[str]) -> None:
    with FULL.open("w") as full:
        done = subprocess.run(
            command(arguments),
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.stderr == "kvscope: standard output: No space left on device\n"
    assert done.returncode == 2


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_reader_that_has_gone_ends_a_command_silently(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command(arguments),
        cwd=ROOT,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_closed_output_is_no_traceback(arguments: list[str]) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command(arguments)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
