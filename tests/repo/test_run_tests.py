"""The test runner's handling of failures: noise is run again, the rest fails."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.process import ROOT

pytestmark = pytest.mark.nightly

SETTINGS = """
[pytest]
addopts = --import-mode=importlib --strict-markers
markers =
    nightly: a
    waits: b
    vllm: c
    chaos: d
    timed: e
    hypothesis: f
    sglang: g
    ray: h
    weekly: i
"""
PASSES = "def test_it() -> None:\n    pass\n"
FAILS = "def test_it() -> None:\n    raise AssertionError\n"
FAILS_ONCE = """
from pathlib import Path

def test_it() -> None:
    marker = Path(__file__).with_suffix(".failed")
    failed = marker.exists()
    marker.touch()
    assert failed
"""
FAILS_ONCE_BESIDE = FAILS_ONCE.replace("def", "import pytest\n\n@pytest.mark.waits\ndef")
KILLS_ITS_WORKER = "import os\n\ndef test_it() -> None:\n    os._exit(9)\n"
CANNOT_BE_COLLECTED = "import nothing_of_this_name\n"
NIGHTLY = "import pytest\n\n@pytest.mark.nightly\ndef test_it() -> None:\n    pass\n"
TIMED = FAILS_ONCE.replace("def", "import pytest\n\n@pytest.mark.timed\n@pytest.mark.nightly\ndef")


def run(folder: Path, files: dict[str, str], *options: str) -> tuple[int, str]:
    (folder / "pytest.ini").write_text(SETTINGS)
    (folder / "tests").mkdir()
    for name, text in files.items():
        (folder / "tests" / f"test_{name}.py").write_text(text)
    ended = subprocess.run(
        [sys.executable, "-P", str(ROOT / "tools" / "run_tests.py"), *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist"},
    )
    return ended.returncode, ended.stdout


def test_what_passes_alone_is_named_and_what_fails_again_is_a_failure(tmp_path: Path) -> None:
    files = {"once": FAILS_ONCE, "beside": FAILS_ONCE_BESIDE, "broken": FAILS, "well": PASSES}
    status, output = run(tmp_path, files)
    assert status == 1, output
    named = output.partition("passed only when run alone:")[2].split()
    assert named[:2] == ["tests/test_once.py::test_it", "tests/test_beside.py::test_it"], output
    assert "tests/test_broken.py::test_it" not in named


def test_noise_alone_is_a_success(tmp_path: Path) -> None:
    status, output = run(tmp_path, {"once": FAILS_ONCE})
    assert status == 0, output
    assert "passed only when run alone:" in output


@pytest.mark.nightly
def test_a_worker_that_crashed_is_a_failure(tmp_path: Path) -> None:
    status, output = run(tmp_path, {"crash": KILLS_ITS_WORKER, "well": PASSES})
    assert status == 1, output
    named = output.partition("crashed or not collected:")[2]
    assert "tests/test_crash.py::test_it" in named, output


@pytest.mark.nightly
def test_a_file_that_cannot_be_collected_is_a_failure(tmp_path: Path) -> None:
    status, output = run(tmp_path, {"spoilt": CANNOT_BE_COLLECTED, "once": FAILS_ONCE_BESIDE})
    assert status == 1, output
    assert "crashed or not collected:" in output


@pytest.mark.nightly
def test_many_failures_are_not_run_again(tmp_path: Path) -> None:
    many = "import pytest\n\n@pytest.mark.parametrize('n', range(21))\ndef test_it(n) -> None:\n"
    status, output = run(tmp_path, {"many": many + "    assert False\n"})
    assert status == 1, output
    assert "running again" not in output


def test_each_target_runs_its_own(tmp_path: Path) -> None:
    files = {"timed": TIMED, "night": NIGHTLY, "day": FAILS}
    status, output = run(tmp_path, files, "--nightly")
    assert "test_night.py" in output
    assert "test_day.py" not in output
    assert status == 0, output
    assert "tests/test_timed.py::test_it" in output.partition("passed only when run alone:")[2]


@pytest.mark.nightly
def test_a_check_beside_the_tests_fails_the_run_and_is_shown_after_them(tmp_path: Path) -> None:
    command = shlex.join([sys.executable, "-c", "print('checked'); raise SystemExit(3)"])
    status, output = run(tmp_path, {"well": PASSES}, "--beside", command)
    assert status == 1, output
    assert "1 passed" in output.partition("checked")[0], output
    assert "kvscope: failed in" in output.partition("checked")[2], output


@pytest.mark.nightly
def test_no_test_selected_is_no_success(tmp_path: Path) -> None:
    status, output = run(tmp_path, {"night": NIGHTLY}, "tests/test_night.py")
    assert status == 5, output
    assert "make nightly" in output
