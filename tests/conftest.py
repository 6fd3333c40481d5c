"""Skips what this machine cannot run; in CI (CI=true) a missing program is a failure instead."""

import os
import shutil

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
