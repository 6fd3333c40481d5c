"""The command that measures on a GPU: its message without one, and its table."""

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.on_a_gpu.report import Figure, table
from tests.repo.checkout import ROOT


def test_without_a_device_it_says_so_in_one_line_and_ends_with_2(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.on_a_gpu", "--out", str(tmp_path / "out")],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr == "benchmarks.on_a_gpu: no CUDA device here: nothing measured\n"
    assert ended.stdout == ""


def test_a_target_is_met_or_not_and_a_comparison_neither() -> None:
    figures = [
        Figure("share", 0.85, "", 0.85, "higher"),
        Figure("ratio", 1.51, "", 1.5),
        Figure("time", 3.7, "ms"),
    ]
    assert [figure.met for figure in figures] == [True, False, None]
    assert table(figures).splitlines()[2:] == [
        "| share | 0.85  | ≥ 0.85 | yes |",
        "| ratio | 1.51  | ≤ 1.5 | **no** |",
        "| time | 3.7 ms |  |  |",
    ]
