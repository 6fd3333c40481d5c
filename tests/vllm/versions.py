"""`make test-vllm-versions`: the tests of the observer on several vLLMs, and a table of results.

    python -m tests.vllm.versions 0.20.2 0.28.0

Each gets an environment of its own, `.venv/vllm-VERSION`, made by scripts/vllm-env. What docs/vllm.md
shows is printed at the end.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.process import ROOT

RESULTS = "VLLM_RESULTS"
"""Environment variable: the file that a run adds its lines of JSON to."""


def install(version: str) -> Path:
    """The environment of this version; raises CalledProcessError."""
    folder = ROOT / ".venv" / f"vllm-{version}"
    subprocess.run([ROOT / "scripts" / "vllm-env", str(folder), version], check=True)
    return folder


def check(version: str, results: Path) -> bool:
    """Run the tests on it; whether they passed."""
    environment = os.environ | {"VLLM_ENV": str(install(version)), RESULTS: str(results)}
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    tests = ("tests/vllm/test_version.py",)
    done = subprocess.run([*command, *tests], cwd=ROOT, env=environment | {"CI": "true"})
    return done.returncode == 0


def table(results: Path, failed: list[str]) -> str:
    """One row for each run, as Markdown."""
    heads = ("vLLM", "set-up", "steps", "differ", "queried", "hit", "preempted", "tokens", "vLLM's")
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    if results.exists():
        for text in results.read_text().splitlines():
            row = json.loads(text)
            lines.append("| " + " | ".join(str(row[head]) for head in heads) + " |")
    return "\n".join(lines + [f"| {version} | FAILED |" for version in failed])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("versions", nargs="+")
    versions = parser.parse_args().versions
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        failed = [version for version in versions if not check(version, results)]
        print(table(results, failed))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
