"""The Triton kernels, in a process of their own: on a CPU in Triton's interpreter.

The interpreter is on or off for a whole process. On CUDA the same checks run natively.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

CHECKS = Path(__file__).with_name("triton")


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [
        *("attention_checks.py", "decoder_checks.py", "token_checks.py", "engine_checks.py"),
        "compile_checks.py",
    ],
)
def test_kernels(file: str) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    if not torch.cuda.is_available() and file != "compile_checks.py":
        environment["TRITON_INTERPRET"] = "1"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", CHECKS / file]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]
    assert "skipped" not in ended.stdout
