"""Skips what this machine cannot run; in CI (CI=true) a missing program is a failure instead.

The slowest files come first, so that no process is left with one at the end. What one test does to
the signals of this process does not reach the processes of the next.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from httpx._transports import default as transports
from hypothesis import settings

PROGRAMS = {
    "promtool": "promtool",
    "prometheus": "prometheus",
    "alertmanager": "prometheus-alertmanager",
    "amtool": "amtool",
    "kubectl": "kubectl",
    "helm": "helm",
    "browser": "chromium",
    "tmux": "tmux",
}
"""Marker to program on PATH."""
SLOW_FILES = Path(__file__).with_name("slow_files.txt")
"""Seconds and name of each, as `python -m tools.run_tests --times FILE` writes them."""

ALONE = "KVSCOPE_TEST_ALONE"
"""Set in the process of a test that runs in one of its own."""

# `httpx.get` reads all certificates of the world each time: 25 ms, and some tests ask often.
transports.create_ssl_context = cache(transports.create_ssl_context)  # type: ignore[attr-defined]
os.environ["KVSCOPE_TENANT_SECRET"] = "a secret of the tests"  # of the servers they start, too

settings.register_profile("default", max_examples=25, deadline=None)
settings.register_profile("ci", max_examples=25, deadline=None, derandomize=True, database=None)
settings.register_profile("nightly", settings.get_profile("ci"), max_examples=120)
settings.register_profile("weekly", max_examples=600, deadline=None)  # other ones each time
settings.register_profile(
    "fuzz", max_examples=int(os.environ.get("KVSCOPE_FUZZ_INPUTS", "10000")), deadline=None
)
settings.load_profile(
    os.environ.get("KVSCOPE_HYPOTHESIS_PROFILE")
    or ("ci" if os.environ.get("CI") == "true" else "default")
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    lines = SLOW_FILES.read_text().splitlines()
    seconds = {file: float(took) for took, file in map(str.split, lines)}
    items.sort(key=lambda item: -seconds.get(item.nodeid.partition("::")[0], 0.0))
    for item in items:
        if item.get_closest_marker("chaos") or item.get_closest_marker("timed"):
            item.add_marker("nightly")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if os.environ.get("CI") == "true":
        return
    for marker, program in PROGRAMS.items():
        if item.get_closest_marker(marker) and shutil.which(program) is None:
            pytest.skip(f"no {program} on PATH")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Threads, files and memory of a process are those of all tests that it has run: a test that
    counts them would pass or fail by what others left behind, or do meanwhile."""
    if pyfuncitem.get_closest_marker("alone") is None or ALONE in os.environ:
        return None
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    ended = subprocess.run(
        [*command, "-m", "", pyfuncitem.nodeid],
        cwd=pyfuncitem.config.rootpath,
        env=inherited | {ALONE: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        pytest.fail(ended.stdout + ended.stderr, pytrace=False)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """A command holds SIGUSR1 until its process ends. Run by a test inside this one, it would hold
    it in every process that a later test starts, since those inherit what is held."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    try:
        return (yield)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
