"""Another Python than the one that runs the tests, with what a sidecar needs."""

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.process import ROOT

_ENVIRONMENT = ROOT / ".venv" / "python-3.13"


@functools.cache
def python_3_13() -> str:
    """Its executable; the environment is made at first use. Skips where there is no such Python."""
    found = next(filter(_works, [*_of_pyenv(), "python3.13"]), None)
    if found is None:
        pytest.skip("there is no python3.13 on PATH or in pyenv")
    done = subprocess.run(
        [str(ROOT / "scripts" / "core-env"), str(_ENVIRONMENT), found],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        problem = done.stderr.strip()
        if os.environ.get("CI"):
            pytest.fail(problem)
        pytest.skip(problem)
    return str(_ENVIRONMENT / "bin" / "python")


def _of_pyenv() -> list[str]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return [str(path) for path in sorted(root.glob("versions/3.13.*/bin/python3.13"))]


def _works(python: str) -> bool:
    """pyenv's shims are on PATH, and fail for a version that is not chosen."""
    if shutil.which(python) is None:
        return False
    return subprocess.run([python, "--version"], capture_output=True, check=False).returncode == 0
