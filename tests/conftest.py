"""Skips what this machine cannot run; in CI (CI=true) a missing program is a failure instead.

What one test does to the signals of this process does not reach the processes of the next.
"""

import os
import shutil
import signal
from collections.abc import Iterator

import pytest

PROGRAMS = {
    "promtool": "promtool",
    "prometheus": "prometheus",
    "alertmanager": "prometheus-alertmanager",
    "amtool": "amtool",
    "kubectl": "kubectl",
    "helm": "helm",
}
"""Marker to program on PATH."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    if os.environ.get("CI") == "true":
        return
    for marker, program in PROGRAMS.items():
        if item.get_closest_marker(marker) and shutil.which(program) is None:
            pytest.skip(f"no {program} on PATH")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """A command holds SIGUSR1 until its process ends. Run by a test inside this one, it would hold
    it in every process that a later test starts, since those inherit what is held."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    try:
        return (yield)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
