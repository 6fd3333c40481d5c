"""Runs a driver of vLLM's scheduler in the Python of a vLLM, which is not that of the tests."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import zstandard

from tests.support.process import SOURCES

SECONDS = 800
"""Half a minute on two idle cores; other tests run beside, and before these."""


def run_in_vllm(
    python: Path, directory: Path, module: str, *arguments: str
) -> tuple[list[Any], str]:
    """Lines that `python -m module ...` prints, as JSON, and its stderr; sockets in `directory`."""
    environment = {
        **os.environ,
        "PYTHONPATH": SOURCES,
        "KVSCOPE_OBSERVER_DIR": str(directory),
        "KVSCOPE_TEST_PACKAGES": str(Path(zstandard.__file__).parents[1]),
    }
    ran = subprocess.run(
        [str(python), "-m", module, *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    lines = [line for line in ran.stdout.splitlines() if line.startswith(("{", "["))]
    return [json.loads(line) for line in lines], ran.stderr
