"""The kernels' own checks, compiled for this device: attention by definition, and same tokens."""

import os
import subprocess
import sys

from benchmarks.gpu_decode.report import Figure

CHECKS = {
    "attention as by its definition": "attention_checks.py",
    "tokens as of plain transformers": "token_checks.py",
}


def figures() -> list[Figure]:
    """1 where all of a file passes. What fails is printed."""
    found = []
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    for name, file in CHECKS.items():
        command = [sys.executable, "-m", "pytest", "-q", f"tests/engine/model/triton/{file}"]
        ended = subprocess.run(command, env=environment, stdout=sys.stderr, check=False)
        found.append(Figure(f"{name}, natively", float(ended.returncode == 0), "", 1, "higher"))
    return found
