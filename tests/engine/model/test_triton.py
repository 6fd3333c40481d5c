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
FILES = ("attention", "decoder", "token", "engine", "compile")
NIGHTLY = ("decoder", "compile")
"""The interpreter takes minutes for each of the others."""


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("file", "marked"),
    [
        *((file, "not weekly") for file in NIGHTLY),
        *(
            pytest.param(file, "", marks=pytest.mark.weekly)
            for file in FILES
            if file not in NIGHTLY
        ),
    ],
)
def test_kernels(file: str, marked: str) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    if not torch.cuda.is_available() and file != "compile":
        environment["TRITON_INTERPRET"] = "1"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", marked]
    command.append(str(CHECKS / f"{file}_checks.py"))
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]
    assert "skipped" not in ended.stdout
