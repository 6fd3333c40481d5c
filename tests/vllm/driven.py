"""Runs a driver of vLLM's scheduler in the Python of a vLLM, which is not that of the tests."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.repo.checkout import ROOT

SECONDS = 280


def vllm_python() -> Path:
    """Skips loudly where no vLLM is installed; see scripts/."""
    python = Path(os.environ.get("KVSCOPE_VLLM_ENV", ROOT / ".venv" / "vllm")) / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no vLLM: {python} is missing")
    return python


def tiny_model() -> Path:
    """Only its configuration is read."""
    model = Path(os.environ.get("KVSCOPE_TINY_MODEL", ROOT / ".venv" / "tiny-model"))
    if not model.exists():
        pytest.skip(f"no model: {model} is missing")
    return model


def run_in_vllm(directory: Path, module: str, *arguments: str) -> tuple[list[Any], str]:
    """Lines that `python -m module ...` prints, as JSON, and its stderr; sockets in `directory`."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "KVSCOPE_OBSERVER_DIR": str(directory),
    }
    ran = subprocess.run(
        [str(vllm_python()), "-m", module, *arguments],
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
