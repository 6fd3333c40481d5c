"""`kvscope whatif` and the terminal: progress, Ctrl-C, and output that is not read."""

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from typer.testing import CliRunner

import kvscope.cli.whatif as command
from kvscope.cli.app import app
from kvscope.traces import Trace, TraceRequest
from tests.repo.checkout import ROOT

REQUESTS = 3_000


@pytest.fixture
def long_trace(tmp_path: Path) -> Path:
    file = tmp_path / "trace.jsonl"
    line = '{{"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [{}]}}\n'
    file.write_text("".join(line.format(number % 500) for number in range(REQUESTS)))
    return file


def test_a_long_file_shows_how_far_it_is(long_trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_LINE_EVERY_SECONDS", 0.0)
    result = CliRunner().invoke(app, ["whatif", str(long_trace), "-o", "json"])
    assert result.exit_code == 0
    first, second = result.stderr.splitlines()
    assert first.endswith("1,024 requests read")
    assert second.endswith("2,048 requests read")
    assert "requests read" not in result.stdout


def test_ctrl_c_leaves_no_curve_and_no_traceback(
    long_trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Trace.__iter__

    def interrupted(trace: Trace) -> Iterator[TraceRequest]:
        yield from islice(read(trace), 2_000)
        raise KeyboardInterrupt

    monkeypatch.setattr(Trace, "__iter__", interrupted)
    result = CliRunner().invoke(app, ["whatif", str(long_trace)])
    assert (result.exit_code, result.output) == (130, "")


@pytest.mark.parametrize("options", [[], ["-o", "json"]], ids=["table", "json"])
def test_a_reader_that_has_gone_ends_it_silently(long_trace: Path, options: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "kvscope", "whatif", str(long_trace), *options],
        cwd=ROOT,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")
